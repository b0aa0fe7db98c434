package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/redykv/redykv/internal/bench/plot"
	"github.com/redykv/redykv/internal/paper"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"figure": figureOf, "class": class, "ours": ours, "style": func() template.CSS { return plot.Style },
}).Parse(pageText))

// pageFigure is a figure as the page's template needs it.
type pageFigure struct {
	paper.Figure
	Plots    []pagePlot
	Verdicts []paper.Verdict
	LeftOut  []paper.LeftOut
	Links    []string // transport and network of the measurements
	Settings []string
	Notes    []string
	Columns  []string
	Rows     [][]string
	Wide     bool // the spread of a row is too wide to conclude
}

// WriteHTML writes the page of all figures that were measured or left out.
func WriteHTML(w io.Writer, head paper.Head, figures []paper.Figure, d *paper.Data) error {
	data := struct {
		Head       []line
		Figures    []pageFigure
		Tally      paper.Tally
		Failing    []paper.Verdict
		Unmeasured []paper.LeftOut
	}{Head: headLines(head), Tally: make(paper.Tally), Unmeasured: head.LeftOut}
	for _, f := range figures {
		p, known := newFigure(f, head, d)
		if !known {
			continue
		}
		data.Figures = append(data.Figures, p)
		for _, v := range p.Verdicts {
			data.Tally[v.Outcome]++
			if v.Outcome == paper.Fails {
				data.Failing = append(data.Failing, v)
			}
		}
	}
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("report: HTML: %w", err)
	}
	return nil
}

type pagePlot struct {
	Title string
	SVG   template.HTML
}

type line struct{ Name, Text string }

func headLines(h paper.Head) []line {
	s := h.Scale
	lines := []line{
		{"machine", h.Machine + ", kernel " + h.Kernel},
		{"revision", h.Revisions()},
		{"begun", h.Started.Format("2006-01-02 15:04 MST")},
		{"scale", fmt.Sprintf("%s: stores of %d small records (%d where local memory is to hold all, %d with all sizes of the cache at once) and %d large ones (the paper: 250 million), %v each after %v of warm-up; %d rounds of everything, alternately", s.Name, s.Records, s.LocalRecords, s.TierRecords, s.LargeRecords, s.Duration, s.Warmup, s.Rounds)},
		{"transport", h.Transport + ": memory of other processes on this machine"},
		{"network", h.Net + " (a model on top of the transport)"},
	}
	if h.Trace != "" {
		lines = append(lines, line{"trace of VMs", h.Trace})
	}
	return lines
}

// newFigure combines a figure with its measurements. known reports whether there are any, or
// reasons why not.
func newFigure(f paper.Figure, head paper.Head, d *paper.Data) (p pageFigure, known bool) {
	p.Figure = f
	for _, out := range head.LeftOut {
		if out.Trial == f.Trial {
			p.LeftOut = append(p.LeftOut, out)
		}
	}
	all := d.Trial(f.Trial)
	if len(all) == 0 && len(p.LeftOut) == 0 {
		return p, false
	}
	for _, c := range f.Charts {
		if svg := svg(c, f, d); svg != "" {
			p.Plots = append(p.Plots, pagePlot{c.Title, svg})
		}
	}
	p.Verdicts = paper.Judge(f, d, head.LeftOut)
	for _, m := range all {
		if m.Transport != "" {
			add(&p.Links, fmt.Sprintf("transport %s, network %s", m.Transport, m.Net))
		}
		if m.Round == 1 && m.Setting != "" {
			add(&p.Settings, m.Series+place(m)+": "+m.Setting)
		}
		if m.Note != "" {
			add(&p.Notes, fmt.Sprintf("%s%s, round %d: %s", m.Series, place(m), m.Round, m.Note))
		}
	}
	p.table(d)
	return p, true
}

func place(m paper.Measurement) string {
	if m.Label != "" {
		return ", " + m.Label
	}
	return " at " + plot.Figure(m.X)
}

func add(list *[]string, s string) {
	if !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}

// order of the metrics in tables. Others follow by name.
var order = []string{"mops", "mean_us", "p50_us", "p95_us", "p99_us", "p999_us", "max_us", "hit_memory", "hit_cache", "hit_redy", "hit_ssd", "hit_smb", "hit_other"}

// wideSpread is the spread of rounds, relative to the median, from which the page warns.
const wideSpread = 0.3

// table adds a row per point: the medians of its rounds, and their spread.
func (p *pageFigure) table(d *paper.Data) {
	var metrics []string
	for _, m := range d.Trial(p.Trial) {
		for name := range m.Values {
			add(&metrics, name)
		}
	}
	rank := func(metric string) uint { return uint(slices.Index(order, metric)) } // the greatest if it is not there
	slices.SortFunc(metrics, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b)) })
	p.Columns = append([]string{"series", "at", "rounds", "spread"}, metrics...)
	for _, series := range d.Series(p.Trial) {
		for _, x := range d.Xs(p.Trial, series) {
			rounds := d.At(p.Trial, series, x)
			at := plot.Figure(x)
			if rounds[0].Label != "" {
				at = rounds[0].Label
			}
			row := []string{series, at, fmt.Sprint(len(rounds)), "–"}
			for i, name := range metrics {
				v := d.Metric(p.Trial, series, x, name)
				row = append(row, cellOf(name, v))
				if i == 0 && v.Rounds > 1 && !p.ofQuantiles() {
					row[3] = fmt.Sprintf("%.0f %%", 100*v.Spread())
					if v.Spread() > wideSpread {
						row[3] += " !"
						p.Wide = true
					}
				}
			}
			p.Rows = append(p.Rows, row)
		}
	}
}

// ofQuantiles reports whether the rounds are quantiles of a distribution, and not repetitions.
func (p *pageFigure) ofQuantiles() bool {
	return slices.ContainsFunc(p.Charts, func(c paper.Chart) bool { return c.Kind == plot.Steps })
}

func cellOf(metric string, v paper.Value) string {
	switch {
	case v.Rounds == 0:
		return "–"
	case strings.HasPrefix(metric, "hit_"):
		return fmt.Sprintf("%.1f %%", 100*v.Median)
	case strings.HasSuffix(metric, "_bytes"):
		return plot.Figure(v.Median/(1<<20)) + " MiB"
	}
	return plot.Figure(v.Median)
}

func figureOf(v *float64) string {
	if v == nil {
		return "–"
	}
	return plot.Figure(*v)
}

// ours prints our number with the least and greatest round.
func ours(v paper.Verdict) string {
	text := figureOf(v.Ours)
	if v.Least != nil && v.Most != nil {
		text += fmt.Sprintf(" (%s to %s)", plot.Figure(*v.Least), plot.Figure(*v.Most))
	}
	return text
}

// class is the style class of an outcome; those that are not counted have none.
func class(o paper.Outcome) string {
	return map[paper.Outcome]string{paper.Holds: "holds", paper.Fails: "fails"}[o]
}
