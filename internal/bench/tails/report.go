package tails

import (
	"fmt"
	"io"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/ycsb"
)

// Row is one cell. Its JSON form is one line.
type Row struct {
	Event     Event   `json:"event"`
	Records   int64   `json:"records"`      // of the store, when it was loaded
	Used      int64   `json:"records_used"` // that were read and upserted
	ValueSize int     `json:"value_size"`
	Rate      float64 `json:"rate"` // operations a second that were meant
	Ops       uint64  `json:"ops"`  // of all rounds
	// Happened is how often the event was over, in all rounds.
	Happened int64 `json:"happened"`
	// Latencies from the time at which operations were due: the medians of the rounds; Max is the
	// greatest of all rounds.
	P50Us  float64 `json:"p50_us"`
	P99Us  float64 `json:"p99_us"`
	P999Us float64 `json:"p999_us"`
	MaxUs  float64 `json:"max_us"`
	// OverQuiet is the ratio of P999Us to that of the quiet store under the same load: the median
	// of the rounds' ratios; 0 if there is none.
	OverQuiet float64 `json:"p999_over_quiet,omitempty"`
	// Device is the share of the reads that the device answered: the median of the rounds.
	Device float64 `json:"hit_device"`
}

// Report is a run.
type Report struct {
	Spec    Spec
	Machine string
	Rows    []Row
}

func newReport(s Spec, machine string, cells []cell, slices [][]slice) *Report {
	r := &Report{Spec: s, Machine: machine}
	for i, c := range cells {
		all := slices[i]
		row := Row{
			Event: c.event, Records: s.Records, Used: c.used, ValueSize: s.ValueSize, Rate: s.Rate,
			P50Us: median(all, percentile(50)), P99Us: median(all, percentile(99)), P999Us: median(all, percentile(99.9)),
			Device: median(all, func(one *slice) float64 { return one.device }),
		}
		for _, one := range all {
			row.Ops += one.ops
			row.Happened += one.happened
			row.MaxUs = max(row.MaxUs, float64(one.latencies.Max())/1e3)
		}
		if c.event == Machine || c.event == Quiet {
			row.Happened = 0
		}
		for j, quiet := range cells {
			if c.event != Machine && c.event != Quiet && quiet == (cell{Quiet, c.used}) {
				row.OverQuiet = bench.RatioOfRounds(all, slices[j], percentile(99.9))
			}
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

// percentile returns a function that returns a percentile of a slice's latencies, in microseconds.
func percentile(p float64) func(*slice) float64 {
	return func(one *slice) float64 { return float64(one.latencies.ValueAtQuantile(p)) / 1e3 }
}

func median(all []slice, of func(*slice) float64) float64 {
	var values []float64
	for i := range all {
		values = append(values, of(&all[i]))
	}
	return bench.Median(values)
}

// WriteTable prints the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	s := &r.Spec
	fmt.Fprintf(out, "machine: %s\n", r.Machine)
	fmt.Fprintf(out, "records: %d of %d + %d bytes; one thread reads and upserts random ones by plain calls, %.0f operations a second\n", s.Records, ycsb.KeySize, s.ValueSize, s.Rate)
	fmt.Fprintf(out, "cells: %v each in %d slices, alternately, each with a store of its own; latencies from when operations were due, medians of the slices, the maximum that of all\n\n", s.Duration, rounds)
	return bench.WriteTable(out, []bench.Column[Row]{
		bench.Format("during", "%s", func(r *Row) Event { return r.Event }),
		bench.Format("records used", "%d", func(r *Row) int64 { return r.Used }),
		bench.Format("happened", "%d", func(r *Row) int64 { return r.Happened }),
		bench.Format("p50 us", "%.2f", func(r *Row) float64 { return r.P50Us }),
		bench.Format("p99 us", "%.2f", func(r *Row) float64 { return r.P99Us }),
		bench.Format("p99.9 us", "%.2f", func(r *Row) float64 { return r.P999Us }),
		bench.Format("over quiet", "%s", func(r *Row) string { return bench.Ratio(r.OverQuiet) }),
		bench.Format("max us", "%.0f", func(r *Row) float64 { return r.MaxUs }),
		bench.Format("device", "%.2f%%", func(r *Row) float64 { return 100 * r.Device }),
	}, r.Rows)
}

// WriteJSON prints each row as one line of JSON.
func (r *Report) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }
