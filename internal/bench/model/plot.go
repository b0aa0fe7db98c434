package model

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/model"
)

const (
	plotWidth  = 18 * vg.Centimeter
	plotHeight = 10 * vg.Centimeter
)

// Colours that people with any of the common colour blindnesses tell apart.
var (
	oneSided = color.RGBA{R: 0x2b, G: 0x8c, B: 0xd6, A: 255}
	twoSided = color.RGBA{R: 0xe0, G: 0x7b, B: 0x1a, A: 255}
)

// Plot draws what was measured as an SVG: for each measurement a chart with a point
// for each configuration, its throughput above its latency.
func Plot(m *model.Model) ([]byte, error) {
	var plots [][]*plot.Plot
	for _, n := range m.Measurements {
		p, err := chart(m, n)
		if err != nil {
			return nil, fmt.Errorf("modelbench: plot: %w", err)
		}
		plots = append(plots, []*plot.Plot{p})
	}
	if plots == nil {
		return nil, fmt.Errorf("modelbench: plot: the model has no measurements")
	}
	canvas := vgsvg.New(plotWidth, plotHeight*vg.Length(len(plots)))
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadY: 5 * vg.Millimeter, PadX: 5 * vg.Millimeter, PadRight: 5 * vg.Millimeter, PadTop: 2 * vg.Millimeter}
	for row, canvases := range plot.Align(plots, tiles, draw.New(canvas)) {
		plots[row][0].Draw(canvases[0])
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("modelbench: plot: %w", err)
	}
	return out.Bytes(), nil
}

// chart draws the worse of reads and writes of each configuration, which is what a
// search looks at.
func chart(m *model.Model, n *model.Measurement) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s, network %s, distance %d, records of %v", m.Provenance.Transport, n.Network, n.Distance, units.Size(n.RecordSize))
	p.X.Label.Text = "mean latency (us)"
	p.Y.Label.Text = "million operations a second"
	var points [2]plotter.XYs
	for _, at := range n.Points {
		if at.Skipped {
			continue
		}
		x, y := max(at.Read.LatencyUs, at.Write.LatencyUs), min(at.Read.Mops, at.Write.Mops)
		kind := min(at.S, 1)
		points[kind] = append(points[kind], plotter.XY{X: x, Y: y})
	}
	for kind, style := range []struct {
		name  string
		color color.Color
		glyph draw.GlyphDrawer
	}{{"one-sided", oneSided, draw.CircleGlyph{}}, {"batches", twoSided, draw.TriangleGlyph{}}} {
		if len(points[kind]) == 0 {
			continue
		}
		s, err := plotter.NewScatter(points[kind])
		if err != nil {
			return nil, err
		}
		s.GlyphStyle = draw.GlyphStyle{Color: style.color, Radius: 2.5, Shape: style.glyph}
		p.Add(s)
		p.Legend.Add(style.name, s)
	}
	if points[0] != nil || points[1] != nil { // else there is nothing that would have a logarithm
		p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
		p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
		widen(&p.X)
		widen(&p.Y)
	}
	p.Legend.Top, p.Legend.Left = true, true
	return p, nil
}

// widen makes an axis end with powers of ten.
func widen(a *plot.Axis) {
	a.Min = math.Pow(10, math.Floor(math.Log10(a.Min)))
	a.Max = math.Pow(10, math.Ceil(math.Log10(a.Max)+1e-9))
}
