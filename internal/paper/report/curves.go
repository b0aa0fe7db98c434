package report

import (
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/paper"
)

// colours of names that stand for the same thing in every figure.
var colours = []struct {
	prefix string
	colour int
}{
	{"redy", 0}, {"tiered", 0}, {"ssd", 1}, {"smb", 2}, {"raw", 3}, {"unpaused", 0}, {"pause-on", 0}, {"without", 1},
}

const howMany = 6 // colours of the style sheet

// colour is a series' colour, and by that its mark.
func colour(series string, place int) int {
	for _, c := range colours {
		if strings.HasPrefix(strings.ToLower(series), c.prefix) {
			return c.colour
		}
	}
	return place % howMany
}

// curvesOf are what a chart draws.
func curvesOf(c paper.Chart, f paper.Figure, d *paper.Data) []curve {
	if c.Kind == paper.Distribution {
		return distributions(c, d.Trial(f.Trial))
	}
	series := c.Series
	if len(series) == 0 {
		series = d.Series(f.Trial)
	}
	var curves []curve
	for _, name := range series {
		line := curve{name: name, colour: colour(name, len(curves))}
		// Two lines of one colour are one too many.
		for i := 0; i < howMany && slices.ContainsFunc(curves, func(other curve) bool { return other.colour == line.colour }); i++ {
			line.colour = (line.colour + 1) % howMany
		}
		if c.Kind == paper.Course {
			line.points = course(d, f.Trial, name)
		} else {
			line.points = points(c, d, f.Trial, name)
		}
		if len(line.points) > 0 {
			curves = append(curves, line)
		}
	}
	return curves
}

func points(c paper.Chart, d *paper.Data, trial, series string) []dot {
	var dots []dot
	for _, x := range d.Xs(trial, series) {
		v := d.Metric(trial, series, x, c.Metric)
		if v.Rounds == 0 {
			continue
		}
		p := dot{x: x, y: v.Median, least: v.Least, most: v.Most, label: d.At(trial, series, x)[0].Label}
		if c.Tail != "" {
			p.tail = d.Metric(trial, series, x, c.Tail).Median
		}
		dots = append(dots, p)
	}
	return dots
}

// course is the last round's course at the largest X.
func course(d *paper.Data, trial, series string) []dot {
	xs := d.Xs(trial, series)
	if len(xs) == 0 {
		return nil
	}
	rounds := d.At(trial, series, xs[len(xs)-1])
	var dots []dot
	for _, p := range rounds[len(rounds)-1].Points {
		dots = append(dots, dot{x: p[0], y: p[1], least: p[1], most: p[1]})
	}
	return dots
}

// distributions are, for each line of a chart, which share of the rounds is not above
// a number.
func distributions(c paper.Chart, all []paper.Measurement) []curve {
	var curves []curve
	for i, line := range c.Lines {
		var numbers []float64
		for _, m := range all {
			if v, ok := m.Values[line.Metric]; ok {
				numbers = append(numbers, v)
			}
		}
		slices.Sort(numbers)
		steps := curve{name: line.Name, colour: i % howMany, steps: true}
		for j, v := range numbers {
			y := float64(j+1) / float64(len(numbers))
			steps.points = append(steps.points, dot{x: v, y: y, least: 0, most: 1})
		}
		curves = append(curves, steps)
	}
	return curves
}

// paperDots are the paper's numbers that belong into a chart: those of claims that are
// of one point and the chart's metric.
func paperDots(c paper.Chart, f paper.Figure, d *paper.Data) []curve {
	var curves []curve
	for _, own := range curvesOf(c, f, d) {
		papers := curve{name: own.name, colour: own.colour}
		for _, claim := range f.Claims {
			at, ok := claim.Ours.(paper.At)
			if !ok || claim.Paper == 0 || at.Trial != "" || at.Series != own.name || at.Metric != c.Metric {
				continue
			}
			label := ""
			if rounds := d.At(f.Trial, at.Series, at.X); len(rounds) > 0 {
				label = rounds[0].Label
			}
			papers.points = append(papers.points, dot{x: at.X, y: claim.Paper, least: claim.Paper, most: claim.Paper, label: label})
		}
		if len(papers.points) > 0 {
			curves = append(curves, papers)
		}
	}
	return curves
}
