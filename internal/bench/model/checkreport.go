package model

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/units"
)

// The paper's figures of its testbed (7.3).
const (
	paperClientCores = 7.3
	paperServerCores = 1.5
	paperSearchUs    = 27_000.0
	paperLeaves      = 0.75 // of the space that a search looks at
)

// MinMopsOfSLO is the least part of an SLO's throughput that counts as kept.
const MinMopsOfSLO = 0.95

// Verdict says how many SLOs were kept, and how good the predictions were.
type Verdict struct {
	Latency     int     // SLOs whose latency was kept
	Mops        int     // SLOs of whose throughput at least MinMopsOfSLO was kept
	Both        int     // SLOs of which both were kept
	LatencyMiss float64 // median relative error of the predicted latency
	MopsMiss    float64 // of the throughput
}

// Verdict returns the verdict of a report.
func (r *CheckReport) Verdict() (v Verdict) {
	for _, row := range r.Rows {
		latency, mops := row.MeasuredLatencyUs <= row.SLOLatencyUs, row.MeasuredMops >= MinMopsOfSLO*row.SLOMops
		if latency {
			v.Latency++
		}
		if mops {
			v.Mops++
		}
		if latency && mops {
			v.Both++
		}
	}
	v.LatencyMiss = bench.Quantile(r.all(func(r *CheckRow) float64 { return math.Abs(r.MeasuredLatencyUs/r.PredictedLatencyUs - 1) }), 0.5)
	v.MopsMiss = bench.Quantile(r.all(func(r *CheckRow) float64 { return math.Abs(r.MeasuredMops/r.PredictedMops - 1) }), 0.5)
	return v
}

// all returns a number of each row.
func (r *CheckReport) all(of func(*CheckRow) float64) (numbers []float64) {
	for i := range r.Rows {
		numbers = append(numbers, of(&r.Rows[i]))
	}
	return numbers
}

// WriteTable prints the report for people.
func (r *CheckReport) WriteTable(out io.Writer) error {
	s := &r.Spec
	fmt.Fprintf(out, "machine: %s\n", r.Machine)
	fmt.Fprintf(out, "transport: %s, network model: %s; records of %v at random addresses in %v; idle: %s\n",
		s.Transport, s.Net, units.Size(s.RecordSize), units.Size(s.Capacity), s.Idle)
	if s.Apart {
		fmt.Fprintln(out, "clients and servers: on different processors, half of this machine's each")
	}
	fmt.Fprintf(out, "%d SLOs (seed %d; %d others were drawn that no configuration meets), margin %g; %v of measurements each, in %d rounds\n\n",
		len(r.Rows), s.Seed, r.Impossible, s.Margin, s.Duration, s.Rounds)
	fmt.Fprint(out, "distributions, as in figures 13 and 14: that part of all is not above it\n")
	columns := []bench.Column[float64]{{Name: "part", Text: func(part *float64) string { return fmt.Sprintf("%g %%", 100**part) }}}
	for _, c := range []struct {
		name string
		of   func(*CheckRow) float64
	}{
		{"SLO us", func(r *CheckRow) float64 { return r.SLOLatencyUs }},
		{"predicted us", func(r *CheckRow) float64 { return r.PredictedLatencyUs }},
		{"measured us", func(r *CheckRow) float64 { return r.MeasuredLatencyUs }},
		{"SLO Mop/s", func(r *CheckRow) float64 { return r.SLOMops }},
		{"predicted Mop/s", func(r *CheckRow) float64 { return r.PredictedMops }},
		{"measured Mop/s", func(r *CheckRow) float64 { return r.MeasuredMops }},
	} {
		numbers := r.all(c.of)
		columns = append(columns, bench.Format(c.name, "%.4g", func(part *float64) float64 { return bench.Quantile(numbers, *part) }))
	}
	if err := bench.WriteTable(out, columns, []float64{0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95}); err != nil {
		return err
	}
	v := r.Verdict()
	n := len(r.Rows)
	fmt.Fprintf(out, "\nlatency within the SLO: %d of %d; throughput of at least %g of it: %d of %d; both: %d of %d\n",
		v.Latency, n, MinMopsOfSLO, v.Mops, n, v.Both, n)
	fmt.Fprintf(out, "median error of the prediction: latency %.1f %%, throughput %.1f %%\n", 100*v.LatencyMiss, 100*v.MopsMiss)
	mean := func(of func(*CheckRow) float64) float64 { return bench.Mean(r.all(of)) }
	fmt.Fprintf(out, "client cores: %.1f on average (the paper's testbed: %g); server cores: %.1f (%g)\n",
		mean(func(r *CheckRow) float64 { return float64(r.C) }), paperClientCores, mean(func(r *CheckRow) float64 { return float64(r.S) }), paperServerCores)
	search := r.all(func(r *CheckRow) float64 { return r.SearchUs })
	fmt.Fprintf(out, "search: %.0f us on average (the paper: %.0f us on 3 million configurations), median %.0f us, %.0f to %.0f us\n",
		bench.Mean(search), paperSearchUs, bench.Quantile(search, 0.5), slices.Min(search), slices.Max(search))
	leaves := mean(func(r *CheckRow) float64 { return float64(r.Leaves) })
	_, err := fmt.Fprintf(out, "looked at on average: %.2g %% of %d configurations (the paper: %g %%)\n", 100*leaves/float64(r.Leaves), r.Leaves, 100*paperLeaves)
	return err
}

// WriteJSON writes one line of JSON for each SLO.
func (r *CheckReport) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }
