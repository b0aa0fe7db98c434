package bench

import (
	"encoding/json"
	"fmt"
	"io"
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

// Figures puts a sample into a row's units.
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

// FigureColumns are the columns of the figures of a row.
func FigureColumns[R any](figures func(row *R) *Figures) []Column[R] {
	column := func(name, format string, value func(*Figures) any) Column[R] {
		return Column[R]{name, func(row *R) string { return fmt.Sprintf(format, value(figures(row))) }}
	}
	return []Column[R]{
		column("mean us", "%.3f", func(f *Figures) any { return f.MeanUs }),
		column("p50 us", "%.3f", func(f *Figures) any { return f.P50Us }),
		column("p99 us", "%.3f", func(f *Figures) any { return f.P99Us }),
		column("Mop/s", "%.4f", func(f *Figures) any { return f.Mops }),
		column("allocs/op", "%.4f", func(f *Figures) any { return f.AllocsPerOp }),
	}
}

// WriteTable prints rows for people.
func WriteTable[R any](out io.Writer, columns []Column[R], rows []R) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range columns {
		fmt.Fprintf(w, "%s\t", c.Name)
	}
	fmt.Fprintln(w)
	for i := range rows {
		for _, c := range columns {
			fmt.Fprintf(w, "%s\t", c.Text(&rows[i]))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	return nil
}

// WriteJSON prints one line of JSON for each row.
func WriteJSON[R any](out io.Writer, rows []R) error {
	encoder := json.NewEncoder(out)
	for i := range rows {
		if err := encoder.Encode(&rows[i]); err != nil {
			return fmt.Errorf("JSON lines: %w", err)
		}
	}
	return nil
}
