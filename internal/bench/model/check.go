package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/redykv/redykv/internal/bench"
	cachebench "github.com/redykv/redykv/internal/bench/cache"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/redytier"
)

// CheckSpec says which SLOs are drawn and how they are checked.
type CheckSpec struct {
	Setup          // Apart as the model was measured: see Apart
	RecordSize int // bytes
	Count      int
	Seed       uint64
	Margin     float64       // the manager's
	Duration   time.Duration // of all slices of reads and writes of a cache
}

// Check returns an error if the spec makes no sense.
func (s *CheckSpec) Check() error {
	if s.Count < 1 {
		return fmt.Errorf("a count of %d SLOs: want 1 or more", s.Count)
	}
	if err := checkRecord(s.RecordSize); err != nil {
		return err
	}
	return s.measuring().check()
}

// Why an SLO is not kept.
const (
	// ReasonModel: the machine gives what it gave when the check began, and another was predicted.
	ReasonModel = "model"
	// ReasonMachine: the transport alone has become slower by more than the margin.
	ReasonMachine = "machine"
	// ReasonNeighbour: others take more of the processors than before, by more than the margin.
	ReasonNeighbour = "neighbour"
)

// CheckRow is one SLO with its result. Its JSON form is one line. Latencies and throughputs
// are the worse of reads and writes; measured ones are means over all slices. Conditions are the mean
// of those before the cache and after it.
type CheckRow struct {
	SLOLatencyUs       float64 `json:"slo_latency_us"`
	SLOMops            float64 `json:"slo_mops"`
	PredictedLatencyUs float64 `json:"predicted_latency_us"`
	PredictedMops      float64 `json:"predicted_mops"`
	MeasuredLatencyUs  float64 `json:"measured_latency_us"`
	MeasuredMops       float64 `json:"measured_mops"`
	model.Config
	SearchUs float64 `json:"search_us"`
	Leaves   int64   `json:"leaves"` // that the search looked at
	Conditions
	Reason string `json:"reason,omitempty"` // why it is not kept: see ReasonModel; empty: it is
}

// LatencyKept reports whether the mean latency is within the SLO.
func (r *CheckRow) LatencyKept() bool { return r.MeasuredLatencyUs <= r.SLOLatencyUs }

// Kept reports whether both are kept.
func (r *CheckRow) Kept() bool { return r.LatencyKept() && r.ThroughputKept() }

// judge sets the reason of a row that was measured. at are the Conditions when the check began.
func (r *CheckRow) judge(at Conditions, margin float64) {
	switch {
	case r.Kept():
	case fallen(r.Processors, at.Processors, margin):
		r.Reason = ReasonNeighbour
	case fallen(r.RawMops, at.RawMops, margin):
		r.Reason = ReasonMachine
	default:
		r.Reason = ReasonModel
	}
}

// ThroughputKept reports whether the mean throughput is all that the SLO asks for.
func (r *CheckRow) ThroughputKept() bool { return r.MeasuredMops >= r.SLOMops }

// CheckReport is the result of a check.
type CheckReport struct {
	Machine    string
	Spec       CheckSpec
	Leaves     int64      // of the space that was searched
	Impossible int        // SLOs that were drawn and that no configuration is predicted to meet
	Began      Conditions // when it began: predictions hold for these
	Rows       []CheckRow
}

// maxDraws bounds the number of SLOs drawn for one that can be met.
const maxDraws = 1000

// Check draws SLOs between the least and the most of the model, latency and throughput
// independently (7.3), less the margin. For each SLO that can be met it makes a cache and
// measures it. mgr must choose by the same models and margin. progress may be nil.
func Check(ctx context.Context, mgr redytier.Manager, models []*model.Model, spec CheckSpec, progress bench.Progress) (_ *CheckReport, err error) {
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("modelbench: %w", err)
	}
	library, err := model.NewLibrary(models...)
	if err != nil {
		return nil, err
	}
	query, err := spec.query()
	if err != nil {
		return nil, err
	}
	least, most, leaves, err := library.Extent(query)
	if err != nil {
		return nil, err
	}
	report := &CheckReport{Machine: machine.Describe(), Spec: spec, Leaves: leaves}
	rng := rand.New(rand.NewPCG(spec.Seed, 1))
	for draws := 0; len(report.Rows) < spec.Count; {
		if draws++; draws > maxDraws*spec.Count {
			return nil, fmt.Errorf("modelbench: of %d SLOs, %d were possible", draws-1, len(report.Rows))
		}
		query.SLO = drawSLO(rng, least, most, spec.Margin)
		row, err := search(library, query)
		if errors.As(err, new(*model.ImpossibleError)) {
			report.Impossible++
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("modelbench: SLO %v: %w", query.SLO, err)
		}
		report.Rows = append(report.Rows, row)
	}
	yard, err := newYardstick(ctx, &spec)
	if err != nil {
		return nil, fmt.Errorf("modelbench: %w", err)
	}
	defer func() { err = errors.Join(err, yard.close()) }()
	progress = bench.OrQuiet(progress)
	progress.Begin("check", int64(spec.Count))
	defer progress.End()
	if report.Began, err = yard.measure(ctx); err != nil {
		return nil, fmt.Errorf("modelbench: %w", err)
	}
	before := report.Began
	for i := range report.Rows {
		row := &report.Rows[i]
		if err := deploy(ctx, mgr, &spec, row); err != nil {
			return nil, fmt.Errorf("modelbench: SLO %v us, %v Mop/s: %w", row.SLOLatencyUs, row.SLOMops, err)
		}
		after, err := yard.measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("modelbench: %w", err)
		}
		row.Conditions = before.between(after)
		row.judge(report.Began, spec.Margin)
		before = after
		progress.Add(1)
	}
	return report, nil
}

// query returns the query of a library, without an SLO, with the network's name in its usual
// form.
func (s *CheckSpec) query() (model.Query, error) {
	network, err := fabric.ParseNetwork(s.Net)
	if err != nil {
		return model.Query{}, fmt.Errorf("modelbench: %w", err)
	}
	s.Net = network.String()
	return model.Query{
		Margin: func(model.Place, model.Provenance) (float64, bool) { return s.Margin, true }, RecordSize: s.RecordSize, Transport: s.Transport, ClientCores: runtime.NumCPU(),
		Network: func(distance int) string { return network.At(distance).String() },
	}, nil
}

// Apart says whether the model of a check was measured with clients and servers apart: then
// the check must be, too. Check reports a missing model.
func Apart(models []*model.Model, spec CheckSpec) (bool, error) {
	query, err := spec.query()
	if err != nil {
		return false, err
	}
	library, err := model.NewLibrary(models...)
	if err != nil {
		return false, err
	}
	from, _ := library.Source(query, 1)
	return from.Apart, nil
}

// drawSLO draws an SLO between the least and the most of the model, less the margin.
func drawSLO(rng *rand.Rand, least, most model.Performance, margin float64) model.SLO {
	between := func(a, b float64) float64 { return a + rng.Float64()*(b-a) }
	// SLOs of caches are in whole nanoseconds.
	latency := math.Ceil(between(least.LatencyUs, most.LatencyUs)/(1-margin)*1e3) / 1e3
	const rounding = 1e-9
	return model.SLO{LatencyUs: latency, Mops: between(least.Mops, most.Mops) / (1 + margin) * (1 - rounding)}
}

// search queries the library as a manager does, and measures the time, also of an error.
func search(library *model.Library, query model.Query) (row CheckRow, err error) {
	began := time.Now()
	answers, err := library.Search(query)
	row.SearchUs = float64(time.Since(began)) / float64(time.Microsecond)
	if err != nil {
		return row, err
	}
	found, ok := answers[1]
	if !ok {
		return row, fmt.Errorf("%w at distance 1", model.ErrNoModel)
	}
	row.SLOLatencyUs, row.SLOMops = query.LatencyUs, query.Mops
	row.PredictedLatencyUs, row.PredictedMops = found.Predicted.LatencyUs, found.Predicted.Mops
	row.Config, row.Leaves = found.Config, found.Leaves
	return row, nil
}

// deploy makes a cache for a row's SLO and measures it.
func deploy(ctx context.Context, mgr redytier.Manager, spec *CheckSpec, row *CheckRow) (err error) {
	how := spec.measuring()
	by := how.live(spec.Net)
	by.SLO = redytier.SLO{
		MaxLatency:    time.Duration(math.Round(row.SLOLatencyUs * 1e3)),
		MinThroughput: row.SLOMops * 1e6, RecordSize: spec.RecordSize,
	}
	l, err := cachebench.OpenLive(ctx, mgr, by)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if got := l.Configuration(); got != configuration(row.Config) {
		return fmt.Errorf("the manager chose %s, the search here %v", cachebench.ConfigString(got), row.Config)
	}
	read, write, err := how.measure(ctx, l, spec.RecordSize)
	if err != nil {
		return err
	}
	row.MeasuredLatencyUs, row.MeasuredMops = max(read.LatencyUs, write.LatencyUs), min(read.Mops, write.Mops)
	return nil
}

// TimeSearches draws SLOs as Check does, without their caches, and returns how long each search
// takes, in microseconds, whether it finds a configuration or not. There is no margin.
func TimeSearches(models []*model.Model, query model.Query, seed uint64, count int) (us []float64, leaves int64, err error) {
	library, err := model.NewLibrary(models...)
	if err != nil {
		return nil, 0, err
	}
	least, most, leaves, err := library.Extent(query)
	if err != nil {
		return nil, 0, err
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	for range count {
		query.SLO = drawSLO(rng, least, most, 0)
		row, err := search(library, query)
		if err != nil && !errors.As(err, new(*model.ImpossibleError)) {
			return nil, 0, fmt.Errorf("modelbench: SLO %v: %w", query.SLO, err)
		}
		us = append(us, row.SearchUs)
	}
	return us, leaves, nil
}
