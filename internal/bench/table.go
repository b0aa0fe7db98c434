package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Figures are the measured part of a row, to be embedded in it.
type Figures struct {
	MeanUs      float64 `json:"mean_us"` // operations in flight over throughput
	P50Us       float64 `json:"p50_us"`  // percentiles are of a sample of the operations
	P99Us       float64 `json:"p99_us"`
	Mops        float64 `json:"mops"` // 10^6 operations a second
	AllocsPerOp float64 `json:"allocs_per_op"`
	Operations  uint64  `json:"operations"`
	Seconds     float64 `json:"seconds"`
}

// Figures converts a sample to a row's units.
func (s Sample) Figures() Figures {
	f := Figures{Mops: s.Mops, Operations: s.Operations, Seconds: s.Seconds}
	if s.Operations == 0 {
		return f
	}
	f.MeanUs = float64(s.InFlight) / s.Mops
	f.P50Us = float64(s.latencies.ValueAtQuantile(50)) / 1e3
	f.P99Us = float64(s.latencies.ValueAtQuantile(99)) / 1e3
	f.AllocsPerOp = float64(s.Allocs) / float64(s.Operations)
	return f
}

// Column is one column of a table of rows of type R.
type Column[R any] struct {
	Name string
	Text func(row *R) string
}

// Format returns a column that prints a value in a format of package fmt.
func Format[R, V any](name, format string, value func(row *R) V) Column[R] {
	return Column[R]{name, func(row *R) string { return fmt.Sprintf(format, value(row)) }}
}

// Ratio prints a ratio, or a dash if it is 0, which means that there is none.
func Ratio(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", x)
}

// FigureColumns returns the columns of the figures of a row.
func FigureColumns[R any](figures func(row *R) *Figures) []Column[R] {
	return []Column[R]{
		Format("mean us", "%.3f", func(r *R) float64 { return figures(r).MeanUs }),
		Format("p50 us", "%.3f", func(r *R) float64 { return figures(r).P50Us }),
		Format("p99 us", "%.3f", func(r *R) float64 { return figures(r).P99Us }),
		Format("Mop/s", "%.4f", func(r *R) float64 { return figures(r).Mops }),
		Format("allocs/op", "%.4f", func(r *R) float64 { return figures(r).AllocsPerOp }),
	}
}

// Grid returns the table as words: the columns' names, then a line for each row.
func Grid[R any](columns []Column[R], rows []R) [][]string {
	lines := make([][]string, 1+len(rows))
	for _, c := range columns {
		lines[0] = append(lines[0], c.Name)
		for i := range rows {
			lines[i+1] = append(lines[i+1], c.Text(&rows[i]))
		}
	}
	return lines
}

// WriteTable prints rows as a table.
func WriteTable[R any](out io.Writer, columns []Column[R], rows []R) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range Grid(columns, rows) {
		fmt.Fprintln(w, strings.Join(line, "\t")+"\t")
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

// WriteJSON prints each row as one line of JSON.
func WriteJSON[R any](out io.Writer, rows []R) error {
	encoder := json.NewEncoder(out)
	for i := range rows {
		if err := encoder.Encode(&rows[i]); err != nil {
			return fmt.Errorf("JSON line %d: %w", i+1, err)
		}
	}
	return nil
}
