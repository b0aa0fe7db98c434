// Package plot draws charts as SVG with gonum/plot: lines, bars, distributions and points. A
// page that contains them includes [Style], which follows the reader's choice of light or dark.
package plot

import (
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/redykv/redykv/internal/units"
)

// Style has the colours of charts and of the page.
//
//go:embed style.css
var Style template.CSS

// Colours is the number of colours of curves in the style sheet.
const Colours = 6

// Kind is a way to draw a chart.
type Kind int

// The kinds of charts.
const (
	Lines  Kind = iota // a line with a mark for each dot
	Course             // a line without marks, over time
	Steps              // a distribution
	Points             // marks without lines
	Bars               // a group of bars for each label, with a bar for each curve
)

// Chart is one chart.
type Chart struct {
	Name   string // for readers that cannot see the chart
	Title  string
	Kind   Kind
	X, Y   Axis
	Curves []Curve
	Papers []Curve // the paper's numbers, drawn as hollow marks
}

// Curve is a named line, or the bars of one name.
type Curve struct {
	Name   string
	Colour int // of the style sheet, below Colours; it decides the shape of marks, too
	Dots   []Dot
}

// Dot is one point of a curve.
type Dot struct {
	X, Y        float64
	Least, Most float64 // of the rounds; Y if there is one
	Tail        float64 // the 99th percentile, up to which the line reaches instead; 0: none
	Label       string  // of a bar's group
	Text        string  // above a bar, instead of its figure; names the bar
}

// Lone returns a dot without a range.
func Lone(x, y float64) Dot { return Dot{X: x, Y: y, Least: y, Most: y} }

// Axis describes an axis of a chart.
type Axis struct {
	Label string // with the unit
	Log   bool
	Bytes bool // the numbers are bytes, written as 1KiB
}

// width and height of a chart, in the units of its coordinates.
const width, height = 760, 340

// SVG returns the chart as an svg element of an HTML page; empty if there is nothing to draw.
func (c Chart) SVG() template.HTML {
	if !slices.ContainsFunc(c.Curves, func(c Curve) bool { return len(c.Dots) > 0 }) {
		return ""
	}
	canvas := vgsvg.New(width, height)
	c.draw(draw.New(canvas), "")
	return template.HTML(element(canvas, fmt.Sprintf(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s"><title>%s</title>`,
		width, height, html.EscapeString(c.Name), html.EscapeString(c.Title)))) // of numbers and escaped names
}

// File returns charts as one SVG file, with their titles above them.
func File(charts ...Chart) []byte {
	canvas := vgsvg.New(width, vg.Length(height*len(charts)))
	tiles := draw.Tiles{Rows: len(charts), Cols: 1}
	for i, c := range charts {
		c.draw(tiles.At(draw.New(canvas), 0, i), c.Title)
	}
	return []byte(element(canvas, fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d"><style>%ssvg { background: var(--paper); }</style>`,
		width, height*len(charts), Style)))
}

// The colours that gonum draws with. In the SVG they become those of the style sheet.
var (
	ink   = color.RGBA{R: 1, G: 1, B: 1, A: 255}
	grid  = color.RGBA{R: 2, G: 2, B: 2, A: 255}
	paper = color.RGBA{R: 3, G: 3, B: 3, A: 255}
	tip   = color.RGBA{R: 4, G: 4, B: 4, A: 255} // of texts that become tips
)

func series(colour int) color.RGBA { return color.RGBA{R: 5, G: 5, B: uint8(colour), A: 255} }

// element returns a drawing as an svg element that begins with head. Its font is as wide as
// gonum's, and more common.
func element(canvas *vgsvg.Canvas, head string) string {
	var b strings.Builder
	_, _ = canvas.WriteTo(&b) // a strings.Builder returns no error
	_, body, _ := strings.Cut(b.String(), `xlink">`)
	tips := regexp.MustCompile(`<text (x="[^"]*") (y="[^"]*") (transform="[^"]*")\s+style="[^"]*#040404">(.*)</text>`)
	body = tips.ReplaceAllString(body, `<circle c$1 c$2 r="8" $3 fill="transparent"><title>$4</title></circle>`)
	pairs := []string{"#010101", "currentColor", "#020202", "var(--grid)", "#030303", "var(--paper)", "Liberation Sans", "Arial,Helvetica,sans-serif"}
	for i := range Colours {
		pairs = append(pairs, fmt.Sprintf("#0505%02X", i), fmt.Sprintf("var(--s%d)", i))
	}
	return head + strings.NewReplacer(pairs...).Replace(body)
}

// draw draws the chart with gonum, and a legend beside it. Bars of group i have positions on the
// X axis between i and i+1.
func (c Chart) draw(canvas draw.Canvas, title string) {
	c.X.Log = c.X.Log && c.Kind != Bars
	p, legend := plot.New(), plot.NewLegend()
	for _, s := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Label.TextStyle, &p.Y.Tick.Label, &legend.TextStyle,
	} {
		*s = style(*s, s.Font.Size, ink)
	}
	p.BackgroundColor, p.Title.Text = nil, title
	p.X.Color, p.X.Tick.Color, p.Y.Tick.Color = ink, ink, ink
	p.X.Padding, p.Y.Padding, p.X.Tick.Length, p.Y.Tick.Length, p.Y.Width = 0, 0, 4, 4, 0
	p.Add(&plotter.Grid{Horizontal: draw.LineStyle{Color: grid, Width: 1}})
	legend.Top, legend.Left, legend.Padding = true, true, 4

	var groups []string
	var xs []float64
	barWidth := 1 / (float64(len(c.Curves)) + 0.6)
	place := func(curve Curve) (dots []Dot) { // those that have a position
		at := slices.IndexFunc(c.Curves, func(other Curve) bool { return other.Name == curve.Name })
		for _, d := range curve.Dots {
			if c.Kind == Bars {
				if !slices.Contains(groups, d.Label) {
					groups = append(groups, d.Label)
				}
				d.X = float64(slices.Index(groups, d.Label)) + 0.5 + barWidth*(float64(at)-float64(len(c.Curves)-1)/2)
			}
			if !math.IsNaN(d.Y) && (d.X > 0 || !c.X.Log) && (d.Y > 0 || !c.Y.Log) {
				dots, xs = append(dots, d), append(xs, d.X)
			}
		}
		return dots
	}
	var front []plot.Plotter // over all lines and bars
	for _, curve := range c.Curves {
		dots := place(curve)
		if len(dots) == 0 {
			continue
		}
		var sample []plot.Thumbnailer // for the legend
		line := &plotter.Line{XYs: positions(dots), LineStyle: draw.LineStyle{Color: series(curve.Colour), Width: 2}}
		switch c.Kind {
		case Steps:
			line.StepStyle = plotter.PostStep
			fallthrough
		case Lines, Course:
			p.Add(line)
			sample = append(sample, line)
		case Bars:
			bars := &plotter.Histogram{FillColor: line.Color, LogY: true}
			for _, d := range dots {
				bars.Bins = append(bars.Bins, plotter.HistogramBin{Min: d.X - 0.46*barWidth, Max: d.X + 0.46*barWidth, Weight: d.Y})
			}
			p.Add(bars)
			sample = append(sample, bars)
			front = append(front, c.ranges(dots), labels(dots, 10, ink, func(d Dot) (float64, string) {
				_, high := c.span(d)
				return high, cmp.Or(d.Text, Figure(d.Y))
			}))
		}
		if c.Kind == Lines || c.Kind == Points {
			points := marks(dots, curve.Colour, line.Color, 4.5)
			front = append(front, c.ranges(dots), points)
			sample = append(sample, points)
		}
		if c.Kind != Course && c.Kind != Steps {
			front = append(front, c.tips(curve.Name, dots))
		}
		if dots[0].Text == "" {
			legend.Add(curve.Name, sample...)
		}
	}
	for _, curve := range c.Papers {
		dots, outline := place(curve), series(curve.Colour)
		if c.Kind == Bars { // which have that colour
			outline = ink
		}
		front = append(front, marks(dots, curve.Colour, outline, 5.5), marks(dots, curve.Colour, paper, 3), c.tips("the paper, "+curve.Name, dots))
	}
	p.Add(front...)
	c.X.set(&p.X)
	c.Y.set(&p.Y)

	var ticks plot.ConstantTicks
	for i, group := range groups {
		ticks = append(ticks, plot.Tick{Value: float64(i) + 0.5, Label: group})
		p.X.Min, p.X.Max = 0, float64(len(groups))
	}
	if at := slices.Compact(slices.Sorted(slices.Values(xs))); c.Kind == Lines && len(at) > 1 && len(at) <= 9 {
		for _, v := range at {
			ticks = append(ticks, plot.Tick{Value: v, Label: c.X.text(v)})
		}
		if c.X.Log { // it need not end at a power of ten
			p.X.Min, p.X.Max = at[0], at[len(at)-1]
		}
	}
	if len(ticks) > 0 {
		p.X.Tick.Marker = ticks
	}
	names := 1.2 * legend.Rectangle(canvas).Size().X // the reader's font may be wider
	p.Draw(draw.Crop(canvas, 4, -names-14, 4, -8))
	legend.Draw(draw.Crop(canvas, width-names, 0, 0, -8))
}

// set sets an axis that shows all numbers. A linear axis shows 0, too; a logarithmic one goes from
// one power of ten to another.
func (a Axis) set(axis *plot.Axis) {
	axis.Label.Text = a.Label
	if !a.Log || axis.Min > axis.Max {
		axis.Min, axis.Max = min(axis.Min, 0), max(axis.Max, 0)
		return
	}
	if !a.Bytes {
		axis.Label.Text += " (log)"
	}
	axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	axis.Min = 0.999 * math.Pow10(int(math.Floor(math.Log10(axis.Min)+1e-9))) // LogTicks may round 0.1 itself up to 1
	axis.Max = max(10*axis.Min, math.Pow10(int(math.Ceil(math.Log10(axis.Max)-1e-9))))
}

func (a Axis) text(v float64) string {
	if a.Bytes {
		return units.Size(v).String()
	}
	return Figure(v)
}

func positions(dots []Dot) (all plotter.XYs) {
	for _, d := range dots {
		all = append(all, plotter.XY{X: d.X, Y: d.Y})
	}
	return all
}

// marks returns marks at dots. Curves differ in shape as well as in colour.
func marks(dots []Dot, shape int, colour color.Color, radius vg.Length) *plotter.Scatter {
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, diamond{}}
	return &plotter.Scatter{XYs: positions(dots), GlyphStyle: draw.GlyphStyle{Color: colour, Radius: radius, Shape: shapes[shape%len(shapes)]}}
}

type diamond struct{}

// DrawGlyph implements [draw.GlyphDrawer].
func (diamond) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius * 1.2
	c.FillPolygon(style.Color, []vg.Point{{X: at.X - r, Y: at.Y}, {X: at.X, Y: at.Y + r}, {X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y - r}})
}

// span returns the ends of a dot's line.
func (c Chart) span(d Dot) (low, high float64) {
	low, high = d.Least, d.Most
	if d.Tail > d.Y {
		low, high = d.Y, d.Tail
	}
	if c.Y.Log && low <= 0 {
		low = d.Y / 10
	}
	return low, high
}

// ranges returns the lines from the least to the most of the rounds, or up to the tails.
func (c Chart) ranges(dots []Dot) *plotter.YErrorBars {
	bars := &plotter.YErrorBars{LineStyle: draw.LineStyle{Color: ink, Width: 1.4}, CapWidth: 6}
	for _, d := range dots {
		if low, high := c.span(d); high > low {
			bars.XYs = append(bars.XYs, plotter.XY{X: d.X, Y: d.Y})
			bars.YErrors = append(bars.YErrors, struct{ Low, High float64 }{d.Y - low, high - d.Y})
		}
	}
	return bars
}

// labels returns a text for each dot, just above the height that text returns with it.
func labels(dots []Dot, size vg.Length, colour color.Color, of func(Dot) (y float64, text string)) *plotter.Labels {
	l := &plotter.Labels{Offset: vg.Point{Y: 3}}
	for _, d := range dots {
		y, label := of(d)
		l.XYs, l.Labels = append(l.XYs, plotter.XY{X: d.X, Y: y}), append(l.Labels, label)
		l.TextStyle = append(l.TextStyle, style(text.Style{XAlign: text.XCenter, Handler: plot.DefaultTextHandler}, size, colour))
	}
	return l
}

// tips returns the texts that are shown when the reader points to a dot. They take no space.
func (c Chart) tips(name string, dots []Dot) *plotter.Labels {
	return labels(dots, 0.01, tip, func(d Dot) (float64, string) {
		tip := fmt.Sprintf("%s at %s: %s", name, cmp.Or(d.Label, c.X.text(d.X)), Figure(d.Y))
		if d.Most > d.Least {
			tip += fmt.Sprintf(" (%s to %s)", Figure(d.Least), Figure(d.Most))
		}
		if d.Tail > d.Y {
			tip += ", 99th percentile " + Figure(d.Tail)
		}
		return d.Y, tip
	})
}

// style returns a text style with the chart's font.
func style(s text.Style, size vg.Length, colour color.Color) text.Style {
	s.Color, s.Font = colour, font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
	return s
}

// Figure returns a number with three significant digits.
func Figure(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case abs >= 1e6:
		return fmt.Sprintf("%.3g M", v/1e6)
	case abs >= 100:
		return fmt.Sprintf("%.0f", math.Round(v))
	case abs >= 1e-3:
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.2g", v)
}
