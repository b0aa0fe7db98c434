package durable

import (
	"fmt"
	"io"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/peers"
	"github.com/redykv/redykv/ycsb"
)

// Row is one cell. Its JSON form is one line.
type Row struct {
	Store      Subject `json:"store"`
	Goroutines int     `json:"goroutines"`
	ValueSize  int     `json:"value_size"`
	// Writes a second, of the slice with the median, and of the least and the greatest one.
	Writes     float64 `json:"writes_per_s"`
	WritesLess float64 `json:"writes_per_s_least"`
	WritesMore float64 `json:"writes_per_s_most"`
	P50Us      float64 `json:"p50_us"`
	P99Us      float64 `json:"p99_us"`
	// OverPebble is the ratio of writes, OverDisk of median latencies with one goroutine: each
	// the median of the rounds' ratios; 0 if there is none.
	OverPebble float64 `json:"over_pebble,omitempty"`
	OverDisk   float64 `json:"latency_over_disk,omitempty"`
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
		rates := make([]float64, rounds)
		for round := range rates {
			rates[round] = slices[i][round].perSecond
		}
		middle := bench.MedianBy(slices[i], func(one *slice) float64 { return one.perSecond })
		row := Row{
			Store: c.subject, Goroutines: c.goroutines, ValueSize: s.ValueSize,
			Writes: middle.perSecond, WritesLess: bench.Quantile(rates, 0), WritesMore: bench.Quantile(rates, 1),
			P50Us: micros(middle, 50), P99Us: micros(middle, 99),
		}
		for j, other := range cells {
			switch {
			case c.subject == Redykv && other == cell{Pebble, c.goroutines}:
				row.OverPebble = ratio(slices[i], slices[j], func(one slice) float64 { return one.perSecond })
			case c.subject != Disk && c.goroutines == 1 && other.subject == Disk:
				row.OverDisk = ratio(slices[i], slices[j], func(one slice) float64 { return micros(one, 50) })
			}
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

func micros(s slice, percentile float64) float64 {
	return float64(s.latencies.ValueAtQuantile(percentile)) / 1e3
}

// ratio returns the median of the rounds' ratios.
func ratio(over, under []slice, of func(slice) float64) float64 {
	ratios := make([]float64, len(over))
	for i := range over {
		ratios[i] = of(over[i]) / of(under[i])
	}
	return bench.Median(ratios)
}

// WriteTable prints the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	fmt.Fprintf(out, "machine: %s\n", r.Machine)
	fmt.Fprintf(out, "writes: of %d records of %d + %d bytes, each durable before its goroutine's next\n", r.Spec.Records, ycsb.KeySize, r.Spec.ValueSize)
	fmt.Fprintf(out, "cells: %v each in %d slices, alternately; figures of the slice with the median rate, ratios the medians of the rounds' ratios\n", r.Spec.Duration, rounds)
	fmt.Fprintf(out, "disk: overwrites of %d bytes of a file, each followed by fdatasync\n", diskBlock)
	if r.Spec.Pebble {
		fmt.Fprintf(out, "peer: %s, every write synced\n", peers.Module(string(Pebble)))
	}
	fmt.Fprintln(out)
	return bench.WriteTable(out, []bench.Column[Row]{
		bench.Format("store", "%s", func(r *Row) Subject { return r.Store }),
		bench.Format("goroutines", "%d", func(r *Row) int { return r.Goroutines }),
		bench.Format("writes/s", "%.0f", func(r *Row) float64 { return r.Writes }),
		bench.Format("from", "%.0f", func(r *Row) float64 { return r.WritesLess }),
		bench.Format("to", "%.0f", func(r *Row) float64 { return r.WritesMore }),
		bench.Format("p50 us", "%.0f", func(r *Row) float64 { return r.P50Us }),
		bench.Format("p99 us", "%.0f", func(r *Row) float64 { return r.P99Us }),
		bench.Format("over pebble", "%s", func(r *Row) string { return bench.Ratio(r.OverPebble) }),
		bench.Format("latency over disk", "%s", func(r *Row) string { return bench.Ratio(r.OverDisk) }),
	}, r.Rows)
}

// WriteJSON prints each row as one line of JSON.
func (r *Report) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }
