package restart

import (
	"fmt"
	"io"
	"slices"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/plot"
	"github.com/redykv/redykv/internal/units"
)

// Row is one start. Its JSON form is one line.
type Row struct {
	Start     Start  `json:"start"`
	Round     int    `json:"round"`
	Transport string `json:"transport"`
	Memory    int64  `json:"memory"`
	Times     int    `json:"times"`
	ValueSize int    `json:"value_size"`
	Depth     int    `json:"depth"`
	// SecondsTo90 is the time from the beginning of the opening until the throughput is, for half
	// a second, 0.9 of BeforeMops, that before the kill. OpenedS is the opening's part of it.
	SecondsTo90 float64 `json:"seconds_to_90"`
	OpenedS     float64 `json:"opened_s"`
	// HitRedy is the share of Redy of the reads that devices answered until then.
	HitRedy    float64 `json:"hit_redy"`
	BeforeMops float64 `json:"before_mops"` // 10^6 reads a second
	// Series is the throughput of each SampleS seconds from the end of the opening until then.
	SampleS float64   `json:"sample_s"`
	Series  []float64 `json:"series"`
}

// Report is a run.
type Report struct{ Rows []Row }

// seconds returns the median time of a kind of start.
func (r *Report) seconds(start Start) float64 {
	var all []float64
	for _, row := range r.Rows {
		if row.Start == start {
			all = append(all, row.SecondsTo90)
		}
	}
	return bench.Median(all)
}

// Sooner is how many times sooner a warm start is as fast as before, by the medians.
func (r *Report) Sooner() float64 {
	warm := r.seconds(Warm)
	if warm == 0 {
		return 0
	}
	return r.seconds(Cold) / warm
}

// statistic says, in the head of the table, what its figures are.
const statistic = "rows: single starts, warm and cold alternately; before: the mean of the time before the kill; s to 0.9: until the mean of half a second is 0.9 of that; the last line has medians"

// WriteTable prints the starts, and how they compare.
func (r *Report) WriteTable(out io.Writer) error {
	if _, err := fmt.Fprintf(out, "%s\n\n", statistic); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	err := bench.WriteTable(out, []bench.Column[Row]{
		bench.Format("start", "%s", func(r *Row) any { return r.Start }),
		bench.Format("transport", "%s", func(r *Row) any { return r.Transport }),
		bench.Format("memory", "%v", func(r *Row) any { return units.Size(r.Memory) }),
		bench.Format("times on Redy", "%d", func(r *Row) any { return r.Times }),
		bench.Format("before Mop/s", "%.3f", func(r *Row) any { return r.BeforeMops }),
		bench.Format("opened s", "%.2f", func(r *Row) any { return r.OpenedS }),
		bench.Format("s to 0.9", "%.2f", func(r *Row) any { return r.SecondsTo90 }),
		bench.Format("hits Redy", "%.2f", func(r *Row) any { return r.HitRedy }),
	}, r.Rows)
	if err == nil {
		_, err = fmt.Fprintf(out, "median: warm %.2f s, cold %.2f s; warm is %.1f times sooner\n", r.seconds(Warm), r.seconds(Cold), r.Sooner())
	}
	return err
}

// WriteJSON prints each start as one line of JSON.
func (r *Report) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }

// Plot draws the throughput after the median start of each kind as an SVG file.
func (r *Report) Plot() []byte {
	chart := plot.Chart{
		Name: "restart", Title: "Throughput after a kill, as a share of that before", Kind: plot.Course,
		X: plot.Axis{Label: "seconds since the opening began"}, Y: plot.Axis{Label: "share"},
	}
	for i, start := range []Start{Warm, Cold} {
		rows := slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool { return row.Start != start })
		slices.SortFunc(rows, func(a, b Row) int { return int(1e6 * (a.SecondsTo90 - b.SecondsTo90)) })
		curve := plot.Curve{Name: string(start), Colour: i}
		if len(rows) > 0 {
			row := rows[(len(rows)-1)/2]
			curve.Dots = append(curve.Dots, plot.Lone(0, 0), plot.Lone(row.OpenedS, 0))
			for j, mops := range row.Series {
				curve.Dots = append(curve.Dots, plot.Lone(row.OpenedS+float64(j+1)*row.SampleS, mops/row.BeforeMops))
			}
		}
		chart.Curves = append(chart.Curves, curve)
	}
	return plot.File(chart)
}
