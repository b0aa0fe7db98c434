package advise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/redykv/redykv/internal/advisor"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/missratio"
	"github.com/redykv/redykv/ycsb"
)

// Load is a load for which advice is asked.
type Load struct {
	Mix          ycsb.MixName
	Distribution ycsb.Distribution
}

// String returns the load's name.
func (l Load) String() string { return fmt.Sprintf("%s %s", l.Mix, l.Distribution) }

// Loads are the loads that are measured.
var Loads = []Load{
	{ycsb.MixC, ycsb.Uniform}, {ycsb.MixC, ycsb.Zipfian}, {ycsb.MixB, ycsb.Zipfian}, {ycsb.MixA, ycsb.Zipfian}, {ycsb.MixB, ycsb.Uniform},
}

// Spec describes a run: for each load, a store is sampled, advice is asked, and stores with the settings
// of the advice, and with less of each size, are measured.
type Spec struct {
	Calibration
	Times   *advisor.Times // nil: they are measured
	Records int64          // of each load's store
	Loads   []Load
	Prices  advisor.Prices
}

// Check returns an error for a run that is not possible.
func (s *Spec) Check() error {
	switch {
	case s.Records < 10_000 || s.Calibration.Records < 10_000:
		return errors.New("want at least 10000 records")
	case s.Duration <= 0:
		return fmt.Errorf("duration of %v: want a positive time", s.Duration)
	case s.Threads < 1 || s.Depth < 1:
		return fmt.Errorf("%d threads with %d operations each: want at least 1", s.Threads, s.Depth)
	}
	return nil
}

// Row is a setting of a load, as predicted and measured. Its JSON form is one line.
type Row struct {
	Load string  `json:"load"`
	Goal float64 `json:"goal_mops"`
	advisor.Setting
	Measured float64 `json:"measured_mops"`
	Off      float64 `json:"off"` // Measured / Mops - 1
	// Measured shares of reads.
	Memory  float64 `json:"measured_memory"`
	Cache   float64 `json:"measured_cache"`
	Near    float64 `json:"measured_redy"`
	Reached bool    `json:"reached"` // the goal, as measured
}

// Report is a run's result.
type Report struct {
	Machine string
	Spec    Spec
	Used    advisor.Times
	Rows    []Row
}

// Run carries out a run.
func Run(ctx context.Context, s Spec, progress bench.Progress) (*Report, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("advise: %w", err)
	}
	r := &Report{Machine: machine.Describe(), Spec: s}
	if s.Times != nil {
		r.Used = *s.Times
	} else {
		times, err := Calibrate(ctx, s.Calibration, progress)
		if err != nil {
			return nil, err
		}
		r.Used = times
	}
	for _, l := range s.Loads {
		if err := r.load(ctx, l, progress); err != nil {
			return nil, fmt.Errorf("advise: %v: %w", l, err)
		}
	}
	return r, nil
}

// load asks for advice on a load, and measures what it says.
func (r *Report) load(ctx context.Context, l Load, progress bench.Progress) error {
	s := &r.Spec
	data := ycsb.LogBytes(s.Records, s.ValueSize)
	model, grown, err := r.sample(ctx, l, data/4, progress)
	if err != nil {
		return err
	}
	q := advisor.Question{Model: model, Times: r.Used, Prices: s.Prices, Threads: s.Threads, Data: max(data, grown), NoRedy: s.NoRedy}
	slow, fast := q.Predict(data/16, 0, 0), q.Predict(data+data/2, 0, 0)
	q.Goal.Mops = math.Sqrt(slow.Mops * fast.Mops)
	a, err := advisor.Ask(q)
	if err != nil {
		return err
	}
	for _, setting := range append([]advisor.Setting{a.Advice}, a.Steps...) {
		if setting.Cost > a.Advice.Cost {
			continue
		}
		result, err := r.measureSetting(ctx, l, setting, progress)
		if err != nil {
			return fmt.Errorf("%s: %w", setting.What, err)
		}
		r.Rows = append(r.Rows, Row{
			Load: l.String(), Goal: q.Goal.Mops, Setting: setting, Measured: result.Mops, Off: result.Mops/setting.Mops - 1,
			Memory: result.HitMemory, Cache: result.HitCache, Near: result.HitRedy, Reached: result.Mops >= q.Goal.Mops,
		})
	}
	return nil
}

// sample returns the model of a load, and the size of the log.
func (r *Report) sample(ctx context.Context, l Load, memory int64, progress bench.Progress) (m *missratio.Model, size int64, err error) {
	spec := r.spec(l, memory, 0, 0)
	err = withTarget(ctx, filepath.Join(r.Spec.Dir, "sampled"), spec, progress, func(t *ycsb.Target, spec ycsb.Spec) error {
		if err := t.Store.SetSampling(true); err != nil {
			return err
		}
		for range 2 { // the first time warms the simulation up
			if err := t.Store.SetSampling(true); err != nil {
				return err
			}
			if _, err := ycsb.Run(ctx, t, spec, progress); err != nil {
				return err
			}
		}
		c := t.Store.MissRatioCurve()
		m, size = c.Model, c.LogBytes
		return nil
	})
	return m, size, err
}

// measureSetting measures a store with a setting.
func (r *Report) measureSetting(ctx context.Context, l Load, s advisor.Setting, progress bench.Progress) (result ycsb.Result, err error) {
	spec := r.spec(l, s.Memory, s.ReadCache, s.Redy)
	name := strings.ReplaceAll(s.What, " ", "-")
	err = withTarget(ctx, filepath.Join(r.Spec.Dir, name), spec, progress, func(t *ycsb.Target, spec ycsb.Spec) error {
		result, err = ycsb.Run(ctx, t, spec, progress)
		return err
	})
	return result, err
}

// spec returns the experiment on a store of these sizes.
func (r *Report) spec(l Load, memory, cache, redy int64) ycsb.Spec {
	s := &r.Spec
	spec := ycsb.Spec{
		Shape: ycsb.Shape{
			Records: s.Records, ValueSize: s.ValueSize, Memory: memory + cache, ReadCache: float64(cache) / float64(memory+cache),
			Cache: redy, Transport: s.Transport, Net: s.Net, Depth: s.Depth, Written: l.Mix.Writes(), CacheServer: s.Server,
		},
		Device: ycsb.SSD, Mix: l.Mix, Distribution: l.Distribution, Threads: s.Threads, Duration: s.Duration, Warmup: 2 * s.Duration, Seed: 1,
	}
	if redy > 0 {
		spec.Device = ycsb.Redy
	}
	return spec
}
