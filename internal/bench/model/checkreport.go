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

// Verdict says how many SLOs were kept, and how good the predictions were. Its JSON form is one
// line.
type Verdict struct {
	Transport   string  `json:"transport"`
	Net         string  `json:"net"`
	Record      int     `json:"record_bytes"`
	Margin      float64 `json:"margin"` // the manager's
	SLOs        int     `json:"slos"`
	Latency     int     `json:"latency_kept"`    // SLOs whose latency was kept
	Mops        int     `json:"throughput_kept"` // SLOs whose throughput was kept
	Both        int     `json:"kept"`            // SLOs of which both were kept
	Model       int     `json:"model"`           // SLOs that were not kept, by reason
	Machine     int     `json:"machine"`
	Neighbour   int     `json:"neighbour"`
	LatencyMiss float64 `json:"latency_error"` // median relative error of the prediction
	MopsMiss    float64 `json:"throughput_error"`
	LatencyMost float64 `json:"latency_error_p95"`
	MopsMost    float64 `json:"throughput_error_p95"`
	// MostMargin is the margin with which the manager would have allowed for the worst
	// prediction, CommonMargin for those of 95 % of the SLOs.
	CommonMargin float64 `json:"margin_for_95"`
	MostMargin   float64 `json:"margin_for_all"`
	SearchUs     float64 `json:"search_us"` // mean
	Leaves       int64   `json:"leaves"`    // configurations among which was searched
}

// Verdict returns the verdict of a report.
func (r *CheckReport) Verdict() Verdict {
	v := Verdict{
		Transport: r.Spec.Transport, Net: r.Spec.Net, Record: r.Spec.RecordSize, Margin: r.Spec.Margin, SLOs: len(r.Rows), Leaves: r.Leaves,
		SearchUs: bench.Mean(r.all(func(r *CheckRow) float64 { return r.SearchUs })),
	}
	for _, row := range r.Rows {
		latency, mops := row.LatencyKept(), row.ThroughputKept()
		if latency {
			v.Latency++
		}
		if mops {
			v.Mops++
		}
		switch {
		case row.Kept():
			v.Both++
		case row.Reason == ReasonMachine:
			v.Machine++
		case row.Reason == ReasonNeighbour:
			v.Neighbour++
		default:
			v.Model++
		}
	}
	latencies := r.all(func(r *CheckRow) float64 { return math.Abs(r.MeasuredLatencyUs/r.PredictedLatencyUs - 1) })
	throughputs := r.all(func(r *CheckRow) float64 { return math.Abs(r.MeasuredMops/r.PredictedMops - 1) })
	v.LatencyMiss, v.LatencyMost = bench.Quantile(latencies, 0.5), bench.Quantile(latencies, 0.95)
	v.MopsMiss, v.MopsMost = bench.Quantile(throughputs, 0.5), bench.Quantile(throughputs, 0.95)
	margins := r.all((*CheckRow).margin)
	v.CommonMargin, v.MostMargin = bench.Quantile(margins, 0.95), bench.Quantile(margins, 1)
	return v
}

// Judged is the number of SLOs by which the manager is judged: those that were kept, and those that the
// model is to blame for. The others are the machine's, and its neighbours'.
func (v *Verdict) Judged() int { return v.Both + v.Model }

// margin is the least margin with which what was measured meets every SLO that the manager
// meets by this prediction.
func (r *CheckRow) margin() float64 {
	return max(0, 1-r.PredictedLatencyUs/r.MeasuredLatencyUs, r.PredictedMops/r.MeasuredMops-1)
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
	fmt.Fprintf(out, "%d SLOs (seed %d; %d others were drawn that no configuration meets), margin %g\n"+
		"measured: the mean of all slices after the warm-up, %v for each SLO; the worse of reads and writes\n\n",
		len(r.Rows), s.Seed, r.Impossible, s.Margin, s.Duration)
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
		{"transport alone Mop/s", func(r *CheckRow) float64 { return r.RawMops }},
	} {
		numbers := r.all(c.of)
		columns = append(columns, bench.Format(c.name, "%.4g", func(part *float64) float64 { return bench.Quantile(numbers, *part) }))
	}
	if err := bench.WriteTable(out, columns, []float64{0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95}); err != nil {
		return err
	}
	v := r.Verdict()
	n := len(r.Rows)
	fmt.Fprintf(out, "\nlatency within the SLO: %d of %d; all of its throughput: %d of %d; both: %d of %d\n", v.Latency, n, v.Mops, n, v.Both, n)
	fmt.Fprintf(out, "not kept: %d as the model was wrong, %d as the transport alone had become slower by more than the margin (from %.3g Mop/s), %d as others took processors (of %.2g)\n",
		v.Model, v.Machine, r.Began.RawMops, v.Neighbour, r.Began.Processors)
	fmt.Fprintf(out, "median error of the prediction: latency %.1f %%, throughput %.1f %%; the margin that allows for 95 %% of them: %.2g, for all: %.2g\n",
		100*v.LatencyMiss, 100*v.MopsMiss, v.CommonMargin, v.MostMargin)
	mean := func(of func(*CheckRow) float64) float64 { return bench.Mean(r.all(of)) }
	fmt.Fprintf(out, "client cores: %.1f on average (the paper's testbed: %g); server cores: %.1f (%g)\n",
		mean(func(r *CheckRow) float64 { return float64(r.C) }), paperClientCores, mean(func(r *CheckRow) float64 { return float64(r.S) }), paperServerCores)
	search := r.all(func(r *CheckRow) float64 { return r.SearchUs })
	fmt.Fprintf(out, "search: %.0f us on average (the paper: %.0f us on 3 million configurations), median %.0f us, %.0f to %.0f us\n",
		v.SearchUs, paperSearchUs, bench.Quantile(search, 0.5), slices.Min(search), slices.Max(search))
	leaves := mean(func(r *CheckRow) float64 { return float64(r.Leaves) })
	_, err := fmt.Fprintf(out, "looked at on average: %.2g %% of %d configurations (the paper: %g %%)\n", 100*leaves/float64(r.Leaves), r.Leaves, 100*paperLeaves)
	return err
}

// WriteVerdict writes the verdict as one line of JSON.
func (r *CheckReport) WriteVerdict(out io.Writer) error {
	return bench.WriteJSON(out, []Verdict{r.Verdict()})
}

// WriteJSON writes one line of JSON for each SLO.
func (r *CheckReport) WriteJSON(out io.Writer) error { return bench.WriteJSON(out, r.Rows) }
