package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/plot"
	"github.com/redykv/redykv/ycsb"
)

//go:embed report.html
var pageText string

var page = template.Must(template.New("report").Parse(pageText))

// titled is a chart with its title.
type titled struct {
	Title string
	SVG   template.HTML
}

// WriteHTML writes one self-contained HTML page with plots and the table. It has no links and
// loads nothing, and follows the reader's choice of light or dark.
func WriteHTML(w io.Writer, head Head, results []ycsb.Result) error {
	charts := []chart{
		throughput,
		{"Latency, median", "microseconds", func(r ycsb.Result) float64 { return r.P50Micros }, true},
		{"Latency, 99th percentile", "microseconds", func(r ycsb.Result) float64 { return r.P99Micros }, true},
	}
	data := struct {
		Head    []line
		Started string
		Plots   []titled
		Style   template.CSS
		Columns []string
		Rows    [][]string
		Notes   []string
	}{Head: head.lines(results), Started: head.Started.Format("2006-01-02 15:04 MST"), Notes: notes(results), Style: plot.Style}
	grid := bench.Grid(columns(results), results)
	data.Columns, data.Rows = grid[0], grid[1:]
	if len(results) == 0 {
		charts = nil // nothing to draw
	}
	for _, c := range charts {
		data.Plots = append(data.Plots, titled{c.title, c.draw(results)})
	}
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("report: HTML: %w", err)
	}
	return nil
}
