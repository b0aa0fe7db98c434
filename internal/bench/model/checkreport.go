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
func (r *CheckReport) Verdict() Verdict {
	var v Verdict
	var latency, mops []float64
	for _, row := range r.Rows {
		l, t := row.MeasuredLatencyUs <= row.SLOLatencyUs, row.MeasuredMops >= MinMopsOfSLO*row.SLOMops
		for _, kept := range []struct {
			is    bool
			count *int
		}{{l, &v.Latency}, {t, &v.Mops}, {l && t, &v.Both}} {
			if kept.is {
				*kept.count++
			}
		}
		latency = append(latency, math.Abs(row.MeasuredLatencyUs/row.PredictedLatencyUs-1))
		mops = append(mops, math.Abs(row.MeasuredMops/row.PredictedMops-1))
	}
	v.LatencyMiss, v.MopsMiss = bench.Quantile(latency, 0.5), bench.Quantile(mops, 0.5)
	return v
}

// cdfRow is a line of figures 13 and 14.
type cdfRow struct {
	part          float64
	latency, mops [3]float64 // SLO, predicted, measured
}

// cdf returns the distributions of figures 13 and 14.
func (r *CheckReport) cdf() []cdfRow {
	of := func(value func(*CheckRow) float64) []float64 {
		var all []float64
		for i := range r.Rows {
			all = append(all, value(&r.Rows[i]))
		}
		return all
	}
	columns := [][]float64{
		of(func(r *CheckRow) float64 { return r.SLOLatencyUs }),
		of(func(r *CheckRow) float64 { return r.PredictedLatencyUs }),
		of(func(r *CheckRow) float64 { return r.MeasuredLatencyUs }),
		of(func(r *CheckRow) float64 { return r.SLOMops }),
		of(func(r *CheckRow) float64 { return r.PredictedMops }),
		of(func(r *CheckRow) float64 { return r.MeasuredMops }),
	}
	var rows []cdfRow
	for _, part := range []float64{0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95} {
		row := cdfRow{part: part}
		for i := range 3 {
			row.latency[i], row.mops[i] = bench.Quantile(columns[i], part), bench.Quantile(columns[i+3], part)
		}
		rows = append(rows, row)
	}
	return rows
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
	var columns []bench.Column[cdfRow]
	columns = append(columns, bench.Column[cdfRow]{Name: "part", Text: func(r *cdfRow) string { return fmt.Sprintf("%g %%", 100*r.part) }})
	for i, name := range []string{"SLO", "predicted", "measured"} {
		columns = append(columns, bench.Column[cdfRow]{Name: name + " us", Text: func(r *cdfRow) string { return fmt.Sprintf("%.4g", r.latency[i]) }})
	}
	for i, name := range []string{"SLO", "predicted", "measured"} {
		columns = append(columns, bench.Column[cdfRow]{Name: name + " Mop/s", Text: func(r *cdfRow) string { return fmt.Sprintf("%.4g", r.mops[i]) }})
	}
	if err := bench.WriteTable(out, columns, r.cdf()); err != nil {
		return err
	}
	v := r.Verdict()
	n := len(r.Rows)
	fmt.Fprintf(out, "\nlatency within the SLO: %d of %d; throughput of at least %g of it: %d of %d; both: %d of %d\n",
		v.Latency, n, MinMopsOfSLO, v.Mops, n, v.Both, n)
	fmt.Fprintf(out, "median error of the prediction: latency %.1f %%, throughput %.1f %%\n", 100*v.LatencyMiss, 100*v.MopsMiss)
	var clients, servers, leaves, took float64
	var search []float64
	for _, row := range r.Rows {
		clients += float64(row.C)
		servers += float64(row.S)
		leaves += float64(row.Leaves)
		took += row.SearchUs
		search = append(search, row.SearchUs)
	}
	mean := func(sum float64) float64 { return sum / float64(n) }
	fmt.Fprintf(out, "client cores: %.1f on average (the paper's testbed: %g); server cores: %.1f (%g)\n", mean(clients), paperClientCores, mean(servers), paperServerCores)
	fmt.Fprintf(out, "search: %.0f us on average (the paper: %.0f us on 3 million configurations), median %.0f us, %.0f to %.0f us\n",
		mean(took), paperSearchUs, bench.Quantile(search, 0.5), slices.Min(search), slices.Max(search))
	_, err := fmt.Fprintf(out, "looked at on average: %.2g %% of %d configurations (the paper: %g %%)\n", 100*mean(leaves)/float64(r.Leaves), r.Leaves, 100*paperLeaves)
	return err
}

// WriteJSON writes one line of JSON for each SLO.
func (r *CheckReport) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }
