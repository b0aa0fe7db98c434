// Package plot draws charts as SVG: lines, bars, distributions and points. A page that
// contains them includes [Style], which follows the reader's choice of light or dark.
package plot

import (
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
)

// Style has the style sheet's rules for charts, and the colours of the page.
//
//go:embed style.css
var Style template.CSS

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

// Colours is the number of colours of the style sheet.
const Colours = 6

// Dot is one point of a curve.
type Dot struct {
	X, Y        float64
	Least, Most float64 // of the rounds; Y if there is one
	Tail        float64 // of a bar; 0: none
	Label       string  // of a bar's group
	Text        string  // above a bar, instead of its figure; names the bar
}

// Lone returns a dot without a range.
func Lone(x, y float64) Dot { return Dot{X: x, Y: y, Least: y, Most: y} }

// Sizes of a chart in the units of its coordinates. The right margin is for names.
const (
	plotWidth, plotHeight = 760, 340
	left, right           = 66, 170
	top, bottom           = 14, 46
	innerWidth            = plotWidth - left - right
	innerHeight           = plotHeight - top - bottom
	nameHeight            = 15 // between two names
)

// SVG returns the chart as an svg element of an HTML page; empty if there is nothing to
// draw.
func (c Chart) SVG() template.HTML { return c.svg("") }

func (c Chart) svg(attributes string) template.HTML {
	if !slices.ContainsFunc(c.Curves, func(c Curve) bool { return len(c.Dots) > 0 }) {
		return ""
	}
	p := new(plot)
	p.add(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s"%s>`, plotWidth, plotHeight, html.EscapeString(c.Name), attributes)
	p.add(`<title>%s</title>`, html.EscapeString(c.Title))
	if c.Kind == Bars {
		p.bars(c)
	} else {
		p.lines(c)
	}
	p.add(`</svg>`)
	return template.HTML(p.String()) // of numbers and escaped names
}

// File returns charts as one SVG file, with their titles above them.
func File(charts ...Chart) []byte {
	const titleHeight = 30
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d"><style>%s svg { background: var(--paper); }</style>`,
		plotWidth, len(charts)*(plotHeight+titleHeight), Style)
	for i, c := range charts {
		y := i * (plotHeight + titleHeight)
		fmt.Fprintf(&b, `<text class="name" x="%d" y="%d">%s</text>`, left, y+titleHeight-8, html.EscapeString(c.Title))
		b.WriteString(string(c.svg(fmt.Sprintf(` y="%d" width="%d" height="%d"`, y+titleHeight, plotWidth, plotHeight))))
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// plot is a chart being drawn.
type plot struct {
	strings.Builder
	x, y axis
}

func (p *plot) px(v float64) float64 { return left + p.x.at(v)*innerWidth }
func (p *plot) py(v float64) float64 { return top + (1-p.y.at(v))*innerHeight }

func (p *plot) add(format string, args ...any) { fmt.Fprintf(&p.Builder, format, args...) }

// frame draws the axes.
func (p *plot) frame(c Chart) {
	for _, v := range p.y.ticks {
		y := p.py(v)
		p.add(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, left+innerWidth, y, y)
		p.add(`<text class="tick" text-anchor="end" x="%d" y="%.1f">%s</text>`, left-6, y+4, html.EscapeString(p.y.text(v)))
	}
	p.add(`<line class="axis" x1="%d" x2="%d" y1="%d" y2="%d"/>`, left, left+innerWidth, top+innerHeight, top+innerHeight)
	p.add(`<text class="label" text-anchor="middle" x="%d" y="%d">%s%s</text>`, left+innerWidth/2, plotHeight-6, html.EscapeString(c.X.Label), logarithmic(c.X))
	p.add(`<text class="label" text-anchor="middle" transform="translate(13 %d) rotate(-90)">%s%s</text>`, top+innerHeight/2, html.EscapeString(c.Y.Label), logarithmic(c.Y))
}

func logarithmic(a Axis) string {
	if a.Log && !a.Bytes {
		return " (log)"
	}
	return ""
}

// lines draws curves, with a name at the end of each.
func (p *plot) lines(c Chart) {
	var xs, ys, marks []float64
	for _, curve := range slices.Concat(c.Curves, c.Papers) {
		for _, d := range curve.Dots {
			xs = append(xs, d.X)
			ys = append(ys, d.Least, d.Most)
			if !slices.Contains(marks, d.X) {
				marks = append(marks, d.X)
			}
		}
	}
	slices.Sort(marks)
	if c.Kind == Course {
		xs = append(xs, 0)
	}
	p.x, p.y = newAxis(c.X, xs), newAxis(c.Y, ys)
	if c.Kind == Lines {
		p.x.mark(marks)
	}
	p.frame(c)
	for _, v := range p.x.ticks {
		p.add(`<text class="tick" text-anchor="middle" x="%.1f" y="%d">%s</text>`, p.px(v), top+innerHeight+16, html.EscapeString(p.x.text(v)))
	}
	var names []name
	for i, curve := range c.Curves {
		points := p.visible(curve.Dots)
		if len(points) == 0 {
			continue
		}
		if c.Kind != Points {
			p.add(`<path class="line s%d" d="%s"/>`, curve.Colour, p.path(points, c.Kind == Steps))
		}
		if c.Kind == Lines || c.Kind == Points {
			for _, d := range points {
				p.whisker(curve.Colour, p.px(d.X), d)
				p.marker(curve.Colour, p.px(d.X), p.py(d.Y), fmt.Sprintf("%s at %s: %s (%s to %s)", curve.Name, p.x.text(d.X), Figure(d.Y), Figure(d.Least), Figure(d.Most)), "")
			}
		}
		end := points[len(points)-1]
		if c.Kind == Steps { // the names stand where the curves are apart
			end = points[len(points)*(2*i+1)/(2*len(c.Curves))]
		}
		names = append(names, name{curve.Name, curve.Colour, p.px(end.X), p.py(end.Y)})
	}
	for _, curve := range c.Papers {
		for _, d := range p.visible(curve.Dots) {
			p.marker(curve.Colour, p.px(d.X), p.py(d.Y), fmt.Sprintf("the paper, %s at %s: %s", curve.Name, p.x.text(d.X), Figure(d.Y)), " paper")
		}
	}
	p.names(names)
}

// visible returns the points that have a position on the axes.
func (p *plot) visible(points []Dot) []Dot {
	return slices.DeleteFunc(slices.Clone(points), func(d Dot) bool {
		return math.IsNaN(d.Y) || p.x.Log && d.X <= 0 || p.y.Log && d.Y <= 0
	})
}

func (p *plot) path(points []Dot, steps bool) string {
	var b strings.Builder
	for i, d := range points {
		x, y := p.px(d.X), p.py(d.Y)
		switch {
		case i == 0:
			fmt.Fprintf(&b, "M%.1f %.1f", x, y)
		case steps:
			fmt.Fprintf(&b, "H%.1fV%.1f", x, y)
		default:
			fmt.Fprintf(&b, "L%.1f %.1f", x, y)
		}
	}
	return b.String()
}

// whisker draws the line from the least to the most of the rounds.
func (p *plot) whisker(colour int, x float64, d Dot) {
	if d.Most > d.Least {
		low := d.Least
		if p.y.Log {
			low = max(low, p.y.low)
		}
		p.add(`<line class="whisker s%d" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, colour, x, x, p.py(low), p.py(d.Most))
	}
}

// marker draws a mark. Curves differ in shape as well as in colour.
func (p *plot) marker(colour int, x, y float64, tip, class string) {
	const r = 4.5
	shape := ""
	switch colour % 4 {
	case 0:
		shape = fmt.Sprintf(`<circle class="mark s%d%s" cx="%.1f" cy="%.1f" r="%.1f">`, colour, class, x, y, r)
	case 1:
		shape = fmt.Sprintf(`<path class="mark s%d%s" d="M%.1f %.1fh8v8h-8z">`, colour, class, x-4, y-4)
	case 2:
		shape = fmt.Sprintf(`<path class="mark s%d%s" d="M%.1f %.1fl5 9h-10z">`, colour, class, x, y-5)
	case 3:
		shape = fmt.Sprintf(`<path class="mark s%d%s" d="M%.1f %.1fl5 5l-5 5l-5 -5z">`, colour, class, x, y-5)
	}
	end := "</path>"
	if colour%4 == 0 {
		end = "</circle>"
	}
	p.add(`%s<title>%s</title>%s`, shape, html.EscapeString(tip), end)
}

// name is a curve's name, with the position of the curve.
type name struct {
	text   string
	colour int
	x, y   float64
}

// names writes the names to the right of the chart, beside the ends of their curves. Names
// that would overlap are moved apart, and a thin line leads to each.
func (p *plot) names(names []name) {
	slices.SortFunc(names, func(a, b name) int {
		if a.y < b.y {
			return -1
		}
		return 1
	})
	ys := make([]float64, len(names))
	for i, n := range names {
		ys[i] = n.y
		if i > 0 {
			ys[i] = max(ys[i], ys[i-1]+nameHeight)
		}
	}
	for i, limit := len(ys)-1, float64(top+innerHeight); i >= 0; i-- {
		ys[i] = min(ys[i], limit)
		limit = ys[i] - nameHeight
	}
	for i, n := range names {
		const at = left + innerWidth + 14
		p.add(`<path class="leader" d="M%.1f %.1fL%d %.1f"/>`, n.x+6, n.y, at-3, ys[i])
		p.add(`<text class="name t%d" x="%d" y="%.1f">%s</text>`, n.colour, at, ys[i]+4, html.EscapeString(n.text))
	}
}

// bars draws groups of bars, with a figure above each bar.
func (p *plot) bars(c Chart) {
	var groups []string
	var ys []float64
	for _, curve := range slices.Concat(c.Curves, c.Papers) {
		for _, d := range curve.Dots {
			if !slices.Contains(groups, d.Label) {
				groups = append(groups, d.Label)
			}
			ys = append(ys, d.Y, d.Most)
			if d.Tail > 0 {
				ys = append(ys, d.Tail)
			}
		}
	}
	p.x, p.y = axis{low: 0, high: float64(len(groups))}, newAxis(c.Y, ys)
	p.frame(c)
	width := innerWidth / (float64(len(groups)) * (float64(len(c.Curves)) + 0.6))
	place := func(group string, series int) float64 {
		return p.px(float64(slices.Index(groups, group))+0.5) + width*(float64(series)-float64(len(c.Curves))/2)
	}
	for i, group := range groups {
		p.add(`<text class="tick" text-anchor="middle" x="%.1f" y="%d">%s</text>`, p.px(float64(i)+0.5), top+innerHeight+16, html.EscapeString(group))
	}
	var names []name
	for i, curve := range c.Curves {
		for _, d := range p.visible(curve.Dots) {
			x, y := place(d.Label, i), p.py(d.Y)
			p.add(`<rect class="bar s%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`, curve.Colour, x, y, width-3, top+innerHeight-y,
				html.EscapeString(fmt.Sprintf("%s, %s: %s (%s to %s)", d.Label, curve.Name, Figure(d.Y), Figure(d.Least), Figure(d.Most))))
			above := d.Y
			middle := x + width/2 - 1.5
			if d.Tail > d.Y {
				above = d.Tail
				p.add(`<path class="tail s%d" d="M%.1f %.1fV%.1fM%.1f %.1fh10"/>`, curve.Colour, middle, y, p.py(d.Tail), middle-5, p.py(d.Tail))
			} else {
				p.whisker(curve.Colour, middle, d)
				above = max(above, d.Most)
			}
			p.add(`<text class="figure" text-anchor="middle" x="%.1f" y="%.1f">%s</text>`, middle, p.py(above)-4, html.EscapeString(cmp.Or(d.Text, Figure(d.Y))))
		}
		if points := p.visible(curve.Dots); len(points) > 0 && points[0].Text == "" {
			last := points[len(points)-1]
			names = append(names, name{curve.Name, curve.Colour, place(last.Label, i) + width - 9, p.py(last.Y)})
		}
	}
	for _, theirs := range c.Papers {
		i := slices.IndexFunc(c.Curves, func(ours Curve) bool { return ours.Name == theirs.Name })
		for _, d := range p.visible(theirs.Dots) {
			p.marker(theirs.Colour, place(d.Label, i)+width/2-1.5, p.py(d.Y), fmt.Sprintf("the paper, %s, %s: %s", d.Label, theirs.Name, Figure(d.Y)), " paper")
		}
	}
	p.names(names)
}
