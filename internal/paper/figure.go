package paper

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/bench/plot"
)

// Figure is one figure of the paper, as data.
type Figure struct {
	Name    string // name on the command line, such as fig18a
	Title   string
	Section string // section of the paper
	Trial   string // name of the trial that measures it
	// Scaled says what differs from the paper: what is scaled, modelled or left out.
	Scaled string
	Charts []Chart
	// Claims are the paper's numbers and statements about the figure.
	Claims []Claim
}

// Chart draws some of a trial's measurements.
type Chart struct {
	Kind  plot.Kind // Steps: a curve per line, the share of rounds with a value of at most X; Course: medians of the rounds
	Title string
	X, Y  plot.Axis
	// Metric is the key of the drawn values.
	Metric string
	// Tail, if set, is the metric that a line above each bar reaches up to, as in figure 7.
	Tail string
	// Series lists the series to draw, in order. Empty means all.
	Series []string
	// Lines are the curves of a distribution.
	Lines []Line
}

// Line is one curve of a distribution, which draws one metric.
type Line struct{ Name, Metric string }

// Figures returns all figures, in the paper's order.
func Figures() []Figure { return slices.Clone(figures) }

var figures = bounded(slices.Concat(cacheFigures, sloFigures, moveFigures, storeFigures, strandFigures))

// Choose returns the named figures, in the paper's order. The name "all" selects all of them.
func Choose(names []string) ([]Figure, error) {
	var known []string
	for _, f := range figures {
		known = append(known, f.Name)
	}
	for _, name := range names {
		if name != "all" && !slices.Contains(known, name) {
			return nil, fmt.Errorf("unknown experiment %q: want all, or some of %s", name, strings.Join(known, ", "))
		}
	}
	var chosen []Figure
	for _, f := range figures {
		if slices.Contains(names, f.Name) || slices.Contains(names, "all") {
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no experiment is named: want all, or some of %s", strings.Join(known, ", "))
	}
	return chosen, nil
}

// trialOf returns the trial with that name.
func trialOf(name string) Trial {
	for _, t := range trials {
		if t.trialName() == name {
			return t
		}
	}
	return nil
}

var trials = slices.Concat(cacheTrials, sloTrials, moveTrials, storeTrials, strandTrials)
