package paper

import (
	"fmt"
	"github.com/redykv/redykv/internal/bench/plot"
	"slices"
	"strings"
)

// Figure is one figure of the paper, as data.
type Figure struct {
	Name    string // as on the command line: fig18a
	Title   string
	Section string // of the paper
	Trial   string // name of the trial that measures it
	// Scaled says what is not as it was in the paper: scaled, modelled, left out.
	Scaled string
	Charts []Chart
	// Claims are what the paper reports and says of it, to stand beside ours.
	Claims []Claim
}

// Chart is a drawing of some of a trial's measurements.
type Chart struct {
	Kind  ChartKind
	Title string
	X, Y  plot.Axis
	// Metric is the key of the values that are drawn.
	Metric string
	// Tail, if set, is the metric that a bar's line reaches up to, as in figure 7.
	Tail string
	// Series to draw, in this order. Empty: all.
	Series []string
	// Lines are what a Distribution draws: one metric each.
	Lines []Line
}

// Line is one curve of a Distribution.
type Line struct{ Name, Metric string }

// ChartKind is how a chart is drawn.
type ChartKind string

// The kinds of charts.
const (
	Lines        ChartKind = "lines"        // a line for each series, over X
	Bars         ChartKind = "bars"         // a group for each label, a bar for each series
	Distribution ChartKind = "distribution" // for each line, the share of all rounds that is not above X
	Course       ChartKind = "course"       // a line for each series, over time, of the last round
)

// Figures are all that there are, in the paper's order.
func Figures() []Figure { return slices.Clone(figures) }

var figures = slices.Concat(cacheFigures, sloFigures, moveFigures, storeFigures, strandFigures)

// Choose returns the figures of these names, in the paper's order. The name all stands
// for all of them.
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

// trialOf is the trial of that name.
func trialOf(name string) Trial {
	for _, t := range trials {
		if t.trialName() == name {
			return t
		}
	}
	return nil
}

var trials = slices.Concat(cacheTrials, sloTrials, moveTrials, storeTrials, strandTrials)
