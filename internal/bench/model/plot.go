package model

import (
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/bench/plot"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/model"
)

// Plot draws the model as an SVG file: for each measurement a chart with a point for each
// configuration, its throughput over its latency. Both are the worse of reads and writes,
// which is what a search compares with an SLO.
func Plot(m *model.Model) ([]byte, error) {
	var charts []plot.Chart
	for _, n := range m.Measurements {
		curves := []plot.Curve{{Name: "one-sided", Colour: 0}, {Name: "batches", Colour: 1}}
		for _, at := range n.Points {
			if !at.Skipped {
				c := &curves[min(at.S, 1)]
				c.Dots = append(c.Dots, plot.Lone(max(at.Read.LatencyUs, at.Write.LatencyUs), min(at.Read.Mops, at.Write.Mops)))
			}
		}
		title := fmt.Sprintf("%s, network %s, distance %d, records of %v", m.Provenance.Transport, n.Network, n.Distance, units.Size(n.RecordSize))
		charts = append(charts, plot.Chart{
			Name: title, Title: title, Kind: plot.Points, Curves: curves,
			X: plot.Axis{Label: "mean latency (us)", Log: true}, Y: plot.Axis{Label: "million operations a second", Log: true},
		})
	}
	if charts == nil {
		return nil, errors.New("plot: the model has no measurements")
	}
	return plot.File(charts...), nil
}
