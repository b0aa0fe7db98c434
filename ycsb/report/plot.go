package report

import (
	"fmt"
	"html/template"
	"slices"

	"github.com/redykv/redykv/internal/bench/plot"
	"github.com/redykv/redykv/ycsb"
)

// colours lists the devices in the order of the style sheet's colours.
var colours = []ycsb.Device{ycsb.Redy, ycsb.SSD, ycsb.SMB, ycsb.Memory, "pebble", "badger", "bbolt", ycsb.DiskAlone}

// chart is a figure over all results.
type chart struct {
	title, axis string
	value       func(ycsb.Result) float64
	logarithmic bool // where devices differ by orders of magnitude
}

// draw draws the chart's figure of each result as a bar, labelled with the store and the
// figure. Bars of one mix, distribution and number of threads form a group.
func (c chart) draw(results []ycsb.Result) template.HTML { return c.of(results).SVG() }

// Throughput returns the throughput of each result, drawn as bars, as an SVG file.
func Throughput(results []ycsb.Result) []byte { return plot.File(throughput.of(results)) }

var throughput = chart{"Throughput", "million operations per second", func(r ycsb.Result) float64 { return r.Mops }, false}

// of returns the chart of results.
func (c chart) of(results []ycsb.Result) plot.Chart {
	p := plot.Chart{Name: c.title, Title: c.title, Kind: plot.Bars, Y: plot.Axis{Label: c.axis, Log: c.logarithmic}}
	for _, r := range results {
		if r.Device == ycsb.DiskAlone && c.value(r) == 0 || !measured(r) {
			continue // no latencies, or no figures
		}
		name := label(r)
		i := slices.IndexFunc(p.Curves, func(curve plot.Curve) bool { return curve.Name == name })
		if i < 0 {
			i = len(p.Curves)
			p.Curves = append(p.Curves, plot.Curve{Name: name, Colour: max(0, slices.Index(colours, r.Device)) % plot.Colours})
		}
		dot := plot.Lone(0, c.value(r))
		dot.Label, dot.Text = group(r), fmt.Sprintf("%s %s", name, figure(c.value(r)))
		p.Curves[i].Dots = append(p.Curves[i].Dots, dot)
	}
	return p
}

// label returns the name of a result's store, with its read cache, or the depth of a peer's
// reads.
func label(r ycsb.Result) string {
	switch {
	case r.ReadCache > 0:
		return fmt.Sprintf("%s, read cache %g", r.Device, r.ReadCache)
	case slices.Contains(ycsb.Peers, r.Device):
		return fmt.Sprintf("%s, depth %d", r.Device, r.Depth)
	}
	return string(r.Device)
}

// group returns the label of a result's group of bars.
func group(r ycsb.Result) string {
	name := string(r.Distribution)
	if r.Mix.Writes() {
		name = fmt.Sprintf("mix %s, %s", r.Mix, name)
	}
	if r.Threads == 1 {
		return name + ", 1 thread"
	}
	return fmt.Sprintf("%s, %d threads", name, r.Threads)
}
