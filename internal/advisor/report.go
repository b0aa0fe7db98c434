package advisor

import (
	"fmt"
	"io"
	"slices"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/plot"
	"github.com/redykv/redykv/internal/units"
)

var columns = []bench.Column[Setting]{
	bench.Format("setting", "%s", func(s *Setting) string { return s.What }),
	bench.Format("memory", "%v", func(s *Setting) units.Size { return units.Size(s.Memory) }),
	bench.Format("read cache", "%v", func(s *Setting) units.Size { return units.Size(s.ReadCache) }),
	bench.Format("Redy", "%v", func(s *Setting) units.Size { return units.Size(s.Redy) }),
	bench.Format("cost/h", "%.4f", func(s *Setting) float64 { return s.Cost }),
	bench.Format("Mop/s", "%.3f", func(s *Setting) float64 { return s.Mops }),
	bench.Format("latency us", "%.2f", func(s *Setting) float64 { return s.Latency }),
	bench.Format("in memory", "%s", func(s *Setting) string { return percent(s.InMemory) }),
	bench.Format("read cache", "%s", func(s *Setting) string { return percent(s.InCache) }),
	bench.Format("Redy", "%s", func(s *Setting) string { return percent(s.InRedy) }),
	bench.Format("SSD", "%s", func(s *Setting) string { return percent(s.OnSSD) }),
	bench.Format("meets", "%s", func(s *Setting) string { return map[bool]string{true: "yes", false: "no"}[s.Meets] }),
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// WriteTable prints the advice and the steps beside it.
func (a *Answer) WriteTable(out io.Writer) error {
	if !a.Advice.Meets {
		fmt.Fprintln(out, "No setting meets the goal; the first row comes nearest.")
	}
	return bench.WriteTable(out, columns, append([]Setting{a.Advice}, a.Steps...))
}

// WriteJSON prints each setting as one line of JSON.
func (a *Answer) WriteJSON(out io.Writer) error {
	return bench.WriteJSON(out, slices.Concat([]Setting{a.Advice}, a.Steps, a.Frontier))
}

// WritePlot draws, as SVG, what throughput costs.
func (a *Answer) WritePlot(out io.Writer) error {
	chart := plot.Chart{
		Name: "throughput by cost", Title: "What throughput costs", Kind: plot.Lines,
		X: plot.Axis{Label: "cost per hour"}, Y: plot.Axis{Label: "Mop/s"},
	}
	alone, redy := plot.Curve{Name: "memory and SSD"}, plot.Curve{Name: "with Redy", Colour: 1}
	for _, s := range a.Frontier {
		if s.Redy > 0 {
			redy.Dots = append(redy.Dots, plot.Lone(s.Cost, s.Mops))
		} else {
			alone.Dots = append(alone.Dots, plot.Lone(s.Cost, s.Mops))
		}
	}
	for _, c := range []plot.Curve{alone, redy, {Name: "advice", Colour: 2, Dots: []plot.Dot{plot.Lone(a.Advice.Cost, a.Advice.Mops)}}} {
		if len(c.Dots) > 0 {
			chart.Curves = append(chart.Curves, c)
		}
	}
	if _, err := out.Write(plot.File(chart)); err != nil {
		return fmt.Errorf("advisor: writing the plot: %w", err)
	}
	return nil
}
