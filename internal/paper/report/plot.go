package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/paper"
)

// A plot's measures, in the units of its own coordinates. The right margin is for the
// lines' names.
const (
	plotWidth, plotHeight = 760, 340
	left, right           = 66, 170
	top, bottom           = 14, 46
	innerWidth            = plotWidth - left - right
	innerHeight           = plotHeight - top - bottom
	nameHeight            = 15 // between two names
)

// curve is a named line, or the bars of a series.
type curve struct {
	name   string
	colour int // of the style sheet, and the shape of its marks
	points []dot
	steps  bool // a distribution's
}

// dot is one point of a curve.
type dot struct {
	x, y        float64
	least, most float64 // of the rounds; y if there is one
	tail        float64 // of a bar; 0: none
	label       string  // of its group of bars
}

// plot is a drawing that is under way.
type plot struct {
	strings.Builder
	x, y axis
}

func (p *plot) px(v float64) float64 { return left + p.x.at(v)*innerWidth }
func (p *plot) py(v float64) float64 { return top + (1-p.y.at(v))*innerHeight }

func (p *plot) add(format string, args ...any) { fmt.Fprintf(&p.Builder, format, args...) }

// draw draws a chart as an svg element; nothing if there is nothing to draw.
func draw(c paper.Chart, f paper.Figure, d *paper.Data) string {
	curves := curvesOf(c, f, d)
	if !slices.ContainsFunc(curves, func(c curve) bool { return len(c.points) > 0 }) {
		return ""
	}
	p := new(plot)
	p.add(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, plotHeight, html.EscapeString(f.Name+": "+c.Title))
	p.add(`<title>%s</title>`, html.EscapeString(c.Title))
	if c.Kind == paper.Bars {
		p.bars(c, curves, paperDots(c, f, d))
	} else {
		p.lines(c, curves, paperDots(c, f, d))
	}
	p.add(`</svg>`)
	return p.String()
}

// frame draws the axes.
func (p *plot) frame(c paper.Chart) {
	for _, v := range p.y.ticks {
		y := p.py(v)
		p.add(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, left+innerWidth, y, y)
		p.add(`<text class="tick" text-anchor="end" x="%d" y="%.1f">%s</text>`, left-6, y+4, html.EscapeString(p.y.text(v)))
	}
	p.add(`<line class="axis" x1="%d" x2="%d" y1="%d" y2="%d"/>`, left, left+innerWidth, top+innerHeight, top+innerHeight)
	p.add(`<text class="label" text-anchor="middle" x="%d" y="%d">%s%s</text>`, left+innerWidth/2, plotHeight-6, html.EscapeString(c.X.Label), logarithmic(c.X))
	p.add(`<text class="label" text-anchor="middle" transform="translate(13 %d) rotate(-90)">%s%s</text>`, top+innerHeight/2, html.EscapeString(c.Y.Label), logarithmic(c.Y))
}

func logarithmic(a paper.Axis) string {
	if a.Log && !a.Bytes {
		return " (log)"
	}
	return ""
}

// lines draws curves with their names at their ends.
func (p *plot) lines(c paper.Chart, curves []curve, papers []curve) {
	var xs, ys, marks []float64
	for _, curve := range slices.Concat(curves, papers) {
		for _, d := range curve.points {
			xs = append(xs, d.x)
			ys = append(ys, d.least, d.most)
			if !slices.Contains(marks, d.x) {
				marks = append(marks, d.x)
			}
		}
	}
	slices.Sort(marks)
	if c.Kind == paper.Course {
		xs = append(xs, 0)
	}
	p.x, p.y = newAxis(c.X, xs), newAxis(c.Y, ys)
	if c.Kind == paper.Lines {
		p.x.mark(marks)
	}
	p.frame(c)
	for _, v := range p.x.ticks {
		p.add(`<text class="tick" text-anchor="middle" x="%.1f" y="%d">%s</text>`, p.px(v), top+innerHeight+16, html.EscapeString(p.x.text(v)))
	}
	var names []name
	for i, curve := range curves {
		points := p.visible(curve.points)
		if len(points) == 0 {
			continue
		}
		p.add(`<path class="line s%d" d="%s"/>`, curve.colour, p.path(points, curve.steps))
		if c.Kind == paper.Lines {
			for _, d := range points {
				p.whisker(curve.colour, p.px(d.x), d)
				p.marker(curve.colour, p.px(d.x), p.py(d.y), fmt.Sprintf("%s at %s: %s (%s to %s)", curve.name, p.x.text(d.x), figure(d.y), figure(d.least), figure(d.most)), "")
			}
		}
		end := points[len(points)-1]
		if curve.steps { // names of distributions stand where these are apart
			end = points[len(points)*(2*i+1)/(2*len(curves))]
		}
		names = append(names, name{curve.name, curve.colour, p.px(end.x), p.py(end.y)})
	}
	for _, curve := range papers {
		for _, d := range p.visible(curve.points) {
			p.marker(curve.colour, p.px(d.x), p.py(d.y), fmt.Sprintf("the paper, %s at %s: %s", curve.name, p.x.text(d.x), figure(d.y)), " paper")
		}
	}
	p.names(names)
}

// visible are the points that have a place on the axes.
func (p *plot) visible(points []dot) []dot {
	return slices.DeleteFunc(slices.Clone(points), func(d dot) bool {
		return math.IsNaN(d.y) || p.x.Log && d.x <= 0 || p.y.Log && d.y <= 0
	})
}

func (p *plot) path(points []dot, steps bool) string {
	var b strings.Builder
	for i, d := range points {
		x, y := p.px(d.x), p.py(d.y)
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

// whisker is the line from the least to the most of the rounds.
func (p *plot) whisker(colour int, x float64, d dot) {
	if d.most > d.least {
		low := d.least
		if p.y.Log {
			low = max(low, p.y.low)
		}
		p.add(`<line class="whisker s%d" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, colour, x, x, p.py(low), p.py(d.most))
	}
}

// marker marks a point. Series differ in shape as well as in colour.
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

// name is a curve's name, with the place of the curve that it belongs to.
type name struct {
	text   string
	colour int
	x, y   float64
}

// names writes names at the right of the plot, beside the ends of their curves but out
// of each other's way, with a thin line where one had to give way.
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

// bars draws groups of bars with their figures above them.
func (p *plot) bars(c paper.Chart, curves []curve, papers []curve) {
	var groups []string
	var ys []float64
	for _, curve := range slices.Concat(curves, papers) {
		for _, d := range curve.points {
			if !slices.Contains(groups, d.label) {
				groups = append(groups, d.label)
			}
			ys = append(ys, d.y, d.most)
			if d.tail > 0 {
				ys = append(ys, d.tail)
			}
		}
	}
	p.x, p.y = axis{low: 0, high: float64(len(groups))}, newAxis(c.Y, ys)
	p.frame(c)
	width := innerWidth / (float64(len(groups)) * (float64(len(curves)) + 0.6))
	place := func(group string, series int) float64 {
		return p.px(float64(slices.Index(groups, group))+0.5) + width*(float64(series)-float64(len(curves))/2)
	}
	for i, group := range groups {
		p.add(`<text class="tick" text-anchor="middle" x="%.1f" y="%d">%s</text>`, p.px(float64(i)+0.5), top+innerHeight+16, html.EscapeString(group))
	}
	var names []name
	for i, curve := range curves {
		for _, d := range p.visible(curve.points) {
			x, y := place(d.label, i), p.py(d.y)
			p.add(`<rect class="bar s%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`, curve.colour, x, y, width-3, top+innerHeight-y,
				html.EscapeString(fmt.Sprintf("%s, %s: %s (%s to %s)", d.label, curve.name, figure(d.y), figure(d.least), figure(d.most))))
			above := d.y
			middle := x + width/2 - 1.5
			if d.tail > d.y {
				above = d.tail
				p.add(`<path class="tail s%d" d="M%.1f %.1fV%.1fM%.1f %.1fh10"/>`, curve.colour, middle, y, p.py(d.tail), middle-5, p.py(d.tail))
			} else {
				p.whisker(curve.colour, middle, d)
				above = max(above, d.most)
			}
			p.add(`<text class="figure" text-anchor="middle" x="%.1f" y="%.1f">%s</text>`, middle, p.py(above)-4, html.EscapeString(figure(d.y)))
		}
		if points := p.visible(curve.points); len(points) > 0 {
			last := points[len(points)-1]
			names = append(names, name{curve.name, curve.colour, place(last.label, i) + width - 9, p.py(last.y)})
		}
	}
	for _, theirs := range papers {
		i := slices.IndexFunc(curves, func(ours curve) bool { return ours.name == theirs.name })
		for _, d := range p.visible(theirs.points) {
			p.marker(theirs.colour, place(d.label, i)+width/2-1.5, p.py(d.y), fmt.Sprintf("the paper, %s, %s: %s", d.label, theirs.name, figure(d.y)), " paper")
		}
	}
	p.names(names)
}
