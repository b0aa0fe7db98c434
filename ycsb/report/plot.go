package report

import (
	"fmt"
	"html/template"
	"slices"

	"github.com/redykv/redykv/internal/bench/plot"
	"github.com/redykv/redykv/ycsb"
)

// colours lists the devices in the order of the style sheet's colours.
var colours = []ycsb.Device{ycsb.Redy, ycsb.SSD, ycsb.SMB, ycsb.Memory, "pebble", "badger", "bbolt"}

// chart is a figure over all results.
type chart struct {
	title, axis string
	value       func(ycsb.Result) float64
	logarithmic bool // where devices differ by orders of magnitude
}

// draw draws the chart's figure of each result as a bar, labelled with the device and the
// figure. Bars of one distribution and number of threads form a group.
func (c chart) draw(results []ycsb.Result) template.HTML {
	curves := make(map[ycsb.Device]*plot.Curve)
	var devices []ycsb.Device
	for _, r := range results {
		if curves[r.Device] == nil {
			curves[r.Device] = &plot.Curve{Name: string(r.Device), Colour: max(0, slices.Index(colours, r.Device)) % plot.Colours}
			devices = append(devices, r.Device)
		}
		dot := plot.Lone(0, c.value(r))
		dot.Label, dot.Text = group(r), fmt.Sprintf("%s %s", r.Device, figure(c.value(r)))
		curves[r.Device].Dots = append(curves[r.Device].Dots, dot)
	}
	p := plot.Chart{Name: c.title, Title: c.title, Kind: plot.Bars, Y: plot.Axis{Label: c.axis, Log: c.logarithmic}}
	for _, d := range devices {
		p.Curves = append(p.Curves, *curves[d])
	}
	return p.SVG()
}

// group returns the label of a result's group of bars.
func group(r ycsb.Result) string {
	if r.Threads == 1 {
		return fmt.Sprintf("%s, 1 thread", r.Distribution)
	}
	return fmt.Sprintf("%s, %d threads", r.Distribution, r.Threads)
}
