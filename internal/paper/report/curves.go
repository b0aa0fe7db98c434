package report

import (
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/bench/plot"
	"github.com/redykv/redykv/internal/paper"
)

// colours of names that mean the same in every figure.
var colours = []struct {
	prefix string
	colour int
}{
	{"redy", 0}, {"tiered", 0}, {"ssd", 1}, {"smb", 2}, {"raw", 3}, {"unpaused", 0}, {"pause-on", 0}, {"without", 1},
}

// colour returns the colour of a series, which also determines its mark.
func colour(series string, place int) int {
	for _, c := range colours {
		if strings.HasPrefix(strings.ToLower(series), c.prefix) {
			return c.colour
		}
	}
	return place % plot.Colours
}

// svg draws a chart of a figure. It is empty if there is nothing to draw.
func svg(c paper.Chart, f paper.Figure, d *paper.Data) template.HTML {
	return plot.Chart{
		Name: f.Name + ": " + c.Title, Title: c.Title, Kind: c.Kind, X: c.X, Y: c.Y,
		Curves: curvesOf(c, f, d), Papers: paperDots(c, f, d),
	}.SVG()
}

// curvesOf returns the curves of a chart.
func curvesOf(c paper.Chart, f paper.Figure, d *paper.Data) []plot.Curve {
	if c.Kind == plot.Steps {
		return distributions(c, d.Trial(f.Trial))
	}
	series := c.Series
	if len(series) == 0 {
		series = d.Series(f.Trial)
	}
	var curves []plot.Curve
	for _, name := range series {
		line := plot.Curve{Name: name, Colour: colour(name, len(curves))}
		// Two curves must not have the same colour.
		for i := 0; i < plot.Colours && slices.ContainsFunc(curves, func(other plot.Curve) bool { return other.Colour == line.Colour }); i++ {
			line.Colour = (line.Colour + 1) % plot.Colours
		}
		if c.Kind == plot.Course {
			line.Dots = course(d, f.Trial, name)
		} else {
			line.Dots = points(c, d, f.Trial, name)
		}
		if len(line.Dots) > 0 {
			curves = append(curves, line)
		}
	}
	return curves
}

func points(c paper.Chart, d *paper.Data, trial, series string) []plot.Dot {
	var dots []plot.Dot
	for _, x := range d.Xs(trial, series) {
		v := d.Metric(trial, series, x, c.Metric)
		if v.Rounds == 0 {
			continue
		}
		p := plot.Dot{X: x, Y: v.Median, Least: v.Least, Most: v.Most, Label: d.At(trial, series, x)[0].Label}
		if c.Tail != "" {
			p.Tail = d.Metric(trial, series, x, c.Tail).Median
		}
		dots = append(dots, p)
	}
	return dots
}

// course returns the medians of the rounds at the largest X, at the times that all rounds have.
func course(d *paper.Data, trial, series string) []plot.Dot {
	xs := d.Xs(trial, series)
	if len(xs) == 0 {
		return nil
	}
	rounds := d.At(trial, series, xs[len(xs)-1])
	at := make(map[float64][]float64)
	for _, r := range rounds {
		for _, p := range r.Points {
			at[p[0]] = append(at[p[0]], p[1])
		}
	}
	var dots []plot.Dot
	for _, when := range slices.Sorted(maps.Keys(at)) {
		if v := at[when]; len(v) == len(rounds) {
			dots = append(dots, plot.Lone(when, paper.Rounds(v).Median))
		}
	}
	return dots
}

// distributions returns one curve per line of a chart: the share of rounds with a value of at
// most X.
func distributions(c paper.Chart, all []paper.Measurement) []plot.Curve {
	var curves []plot.Curve
	for i, line := range c.Lines {
		var numbers []float64
		for _, m := range all {
			if v, ok := m.Values[line.Metric]; ok {
				numbers = append(numbers, v)
			}
		}
		slices.Sort(numbers)
		steps := plot.Curve{Name: line.Name, Colour: i % plot.Colours}
		for j, v := range numbers {
			y := float64(j+1) / float64(len(numbers))
			steps.Dots = append(steps.Dots, plot.Lone(v, y))
		}
		curves = append(curves, steps)
	}
	return curves
}

// paperDots returns the paper's numbers that belong in a chart: those of claims about one
// point and the chart's metric.
func paperDots(c paper.Chart, f paper.Figure, d *paper.Data) []plot.Curve {
	var curves []plot.Curve
	for _, own := range curvesOf(c, f, d) {
		papers := plot.Curve{Name: own.Name, Colour: own.Colour}
		for _, claim := range f.Claims {
			at, ok := claim.Ours.(paper.At)
			if !ok || claim.Paper == 0 || at.Series != own.Name || at.Metric != c.Metric {
				continue
			}
			label := ""
			if rounds := d.At(f.Trial, at.Series, at.X); len(rounds) > 0 {
				label = rounds[0].Label
			}
			dot := plot.Lone(at.X, claim.Paper)
			dot.Label = label
			papers.Dots = append(papers.Dots, dot)
		}
		if len(papers.Dots) > 0 {
			curves = append(curves, papers)
		}
	}
	return curves
}
