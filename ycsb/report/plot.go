package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/redykv/redykv/ycsb"
)

const (
	plotWidth  = 22 * vg.Centimeter
	plotHeight = 9 * vg.Centimeter
)

// ink is the colour of axes and text while a plot is drawn. In the SVG it
// becomes the page's text colour, which differs between light and dark.
var ink = color.RGBA{R: 1, G: 1, B: 1, A: 255}

// deviceColors are told apart by people with any of the common colour
// blindnesses, and seen on white and on black.
var deviceColors = map[ycsb.Device]color.RGBA{
	ycsb.Redy:   {R: 0x2b, G: 0x8c, B: 0xd6, A: 255},
	ycsb.SSD:    {R: 0xe0, G: 0x7b, B: 0x1a, A: 255},
	ycsb.SMB:    {R: 0x9a, G: 0x6f, B: 0xc4, A: 255},
	ycsb.Memory: {R: 0x2a, G: 0x9d, B: 0x74, A: 255},
	"pebble":    {R: 0xc9, G: 0x4f, B: 0x6d, A: 255},
	"badger":    {R: 0x8a, G: 0x7a, B: 0x2e, A: 255},
	"bbolt":     {R: 0x7f, G: 0x8c, B: 0x99, A: 255},
}

// chart is a figure of every result.
type chart struct {
	title, axis string
	value       func(ycsb.Result) float64
	logarithmic bool // where devices differ by orders of magnitude
}

// draw draws each figure as an upright bar, in one group for each distribution
// and number of threads, and writes device and figure above it.
func (c chart) draw(results []ycsb.Result) (string, error) {
	p := plot.New()
	p.BackgroundColor = nil // the page's
	p.Title.Text = c.title
	p.Y.Label.Text = c.axis
	groups, devices := groupsOf(results), devicesOf(results)
	width := plotWidth * 0.8 / vg.Length(max(1, len(groups)*(len(devices)+1)))
	height, marks := c.scale(results)

	var bars, names []plot.Plotter
	highest := 0.0
	for at, device := range devices {
		heights := make(plotter.Values, len(groups))
		labels := plotter.XYLabels{XYs: make(plotter.XYs, len(groups)), Labels: make([]string, len(groups))}
		for i, group := range groups {
			labels.XYs[i].X = float64(i)
			for _, r := range results {
				if r.Device == device && groupOf(r) == group {
					heights[i] = height(c.value(r))
					labels.XYs[i].Y = heights[i]
					labels.Labels[i] = fmt.Sprintf("%s %s", device, figure(c.value(r)))
				}
			}
			highest = max(highest, heights[i])
		}
		bar, err := plotter.NewBarChart(heights, width)
		if err != nil {
			return "", fmt.Errorf("report: plot %q: %w", c.title, err)
		}
		bar.Color = deviceColors[device]
		bar.LineStyle.Width = 0
		bar.Offset = width * (vg.Length(at) - vg.Length(len(devices)-1)/2)
		name, err := plotter.NewLabels(labels)
		if err != nil {
			return "", fmt.Errorf("report: plot %q: %w", c.title, err)
		}
		name.Offset = vg.Point{X: bar.Offset, Y: 3}
		for i := range name.TextStyle {
			name.TextStyle[i].Color = ink
			name.TextStyle[i].XAlign = text.XCenter
			name.TextStyle[i].Font.Size = 10
		}
		bars, names = append(bars, bar), append(names, name)
	}
	p.Add(bars...)
	p.Add(names...) // over all bars, so that none hides a name
	p.NominalX(groupNames(groups)...)
	p.X.Min, p.X.Max = -0.5, float64(len(groups))-0.5
	p.Y.Min, p.Y.Max = 0, highest*1.15
	if highest == 0 {
		p.Y.Max = 1
	}
	p.Y.Tick.Marker = plot.TickerFunc(marks)
	paint(p)
	return drawSVG(p, c.title)
}

func groupNames(groups []group) []string {
	names := make([]string, len(groups))
	for i, group := range groups {
		names[i] = group.String()
	}
	return names
}

// scale is how high a figure's bar is, and the marks on its axis. On a
// logarithmic axis bars stand on the power of ten below the smallest figure.
func (c chart) scale(results []ycsb.Result) (height func(float64) float64, marks func(low, high float64) []plot.Tick) {
	least := math.Inf(1)
	for _, r := range results {
		if v := c.value(r); v > 0 {
			least = min(least, v)
		}
	}
	if !c.logarithmic || math.IsInf(least, 1) {
		return func(v float64) float64 { return v }, ticks
	}
	bottom := math.Floor(math.Log10(least))
	height = func(v float64) float64 {
		if v <= 0 {
			return 0
		}
		return math.Log10(v) - bottom
	}
	return height, func(_, high float64) []plot.Tick { return decades(bottom, high) }
}

// decades are the powers of ten from 10^bottom, at height 0, up to a height.
func decades(bottom, high float64) []plot.Tick {
	var marks []plot.Tick
	for at := 0.0; at <= high; at++ {
		marks = append(marks, plot.Tick{Value: at, Label: strconv.FormatFloat(math.Pow(10, bottom+at), 'f', -1, 64)})
		for minor := 2.0; minor < 10; minor++ {
			if v := at + math.Log10(minor); v <= high {
				marks = append(marks, plot.Tick{Value: v})
			}
		}
	}
	return marks
}

// ticks are at most six round numbers from low to high, all of them written out.
func ticks(low, high float64) []plot.Tick {
	const most = 5 // steps
	step := math.Pow(10, math.Floor(math.Log10((high-low)/most)))
	for _, times := range []float64{2, 2.5, 2} { // 1, 2, 5, 10 times a power of ten
		if (high-low)/step <= most {
			break
		}
		step *= times
	}
	var marks []plot.Tick
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		marks = append(marks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 4, 64)})
	}
	return marks
}

// paint gives everything that is not a bar the colour of ink.
func paint(p *plot.Plot) {
	p.Title.TextStyle.Color = ink
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color = ink
		axis.Label.TextStyle.Color = ink
		axis.Tick.Color = ink
		axis.Tick.Label.Color = ink
	}
}

var (
	namespaces = regexp.MustCompile(`\s*xmlns(:\w+)?="[^"]*"`)
	families   = regexp.MustCompile(`font-family:[^;"]*`)
	dimensions = regexp.MustCompile(`<svg width="[^"]*" height="[^"]*"`)
)

// drawSVG renders a plot as an svg element for use within HTML: without the XML
// head and the namespaces, which HTML implies, in the page's font and colour,
// and as wide as there is room.
func drawSVG(p *plot.Plot, title string) (string, error) {
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("report: plot %q: %w", title, err)
	}
	svg := b.String()
	start := strings.Index(svg, "<svg")
	if start < 0 {
		return "", fmt.Errorf("report: plot %q: no svg element was drawn", title)
	}
	svg = namespaces.ReplaceAllString(svg[start:], "")
	svg = families.ReplaceAllString(svg, "font-family:inherit")
	svg = dimensions.ReplaceAllLiteralString(svg, `<svg role="img"`)
	return strings.ReplaceAll(svg, "#010101", "currentColor"), nil
}

// group is what bars beside each other have in common.
type group struct {
	distribution ycsb.Distribution
	threads      int
}

func groupOf(r ycsb.Result) group { return group{r.Distribution, r.Threads} }

func (g group) String() string {
	if g.threads == 1 {
		return fmt.Sprintf("%s, 1 thread", g.distribution)
	}
	return fmt.Sprintf("%s, %d threads", g.distribution, g.threads)
}

func groupsOf(results []ycsb.Result) []group { return distinct(results, groupOf) }

func devicesOf(results []ycsb.Result) []ycsb.Device {
	return distinct(results, func(r ycsb.Result) ycsb.Device { return r.Device })
}

// distinct are the values of of over results, each once, in order of appearance.
func distinct[T comparable](results []ycsb.Result, of func(ycsb.Result) T) []T {
	var list []T
	for _, r := range results {
		if v := of(r); !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}
