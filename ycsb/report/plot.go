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
	p := plot.Chart{Name: c.title, Title: c.title, Kind: plot.Bars, Y: plot.Axis{Label: c.axis, Log: c.logarithmic}}
	for _, r := range results {
		i := slices.IndexFunc(p.Curves, func(curve plot.Curve) bool { return curve.Name == string(r.Device) })
		if i < 0 {
			i = len(p.Curves)
			p.Curves = append(p.Curves, plot.Curve{Name: string(r.Device), Colour: max(0, slices.Index(colours, r.Device)) % plot.Colours})
		}
		dot := plot.Lone(0, c.value(r))
		dot.Label, dot.Text = group(r), fmt.Sprintf("%s %s", r.Device, figure(c.value(r)))
		p.Curves[i].Dots = append(p.Curves[i].Dots, dot)
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
