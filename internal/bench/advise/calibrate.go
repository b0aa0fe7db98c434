// Package advise measures what operations take in each place of a store, for the advisor, and whether
// the advisor's settings keep what it promises.
package advise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redykv/redykv/internal/advisor"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/ycsb"
)

// Calibration says how the times of each place are measured: with a small store for each, and the
// threads and the operations under way of the load that is asked about.
type Calibration struct {
	Dir       string // on the SSD
	ValueSize int
	Threads   int
	Depth     int
	Records   int64         // of each small store
	Duration  time.Duration // of each measurement
	NoRedy    bool
	Transport string   // of Redy, as in [ycsb.Shape]
	Net       string   // the network that it emulates
	Server    []string // program of Redy's cache server
}

// stall is the shape of a small store: how much of its data is in memory, and the share of that which is
// its read cache.
type stall struct {
	name    string
	device  ycsb.Device
	mix     ycsb.MixName
	memory  float64
	cache   float64
	place   func(*advisor.Times) *advisor.Time
	reached func(*ycsb.Result) float64 // share of reads that were answered there
}

func (c *Calibration) stalls() []stall {
	all := []stall{
		{"memory", ycsb.SSD, ycsb.MixC, 2, 0, func(t *advisor.Times) *advisor.Time { return &t.Memory }, func(r *ycsb.Result) float64 { return r.HitMemory }},
		{"ssd", ycsb.SSD, ycsb.MixC, 0.1, 0, func(t *advisor.Times) *advisor.Time { return &t.SSD }, func(r *ycsb.Result) float64 { return r.HitSSD }},
		{"cache", ycsb.SSD, ycsb.MixC, 2, 0.95, func(t *advisor.Times) *advisor.Time { return &t.Cache }, func(r *ycsb.Result) float64 { return r.HitCache }},
	}
	if !c.NoRedy {
		all = append(all, stall{"redy", ycsb.Redy, ycsb.MixC, 0.1, 0, func(t *advisor.Times) *advisor.Time { return &t.Redy }, func(r *ycsb.Result) float64 { return r.HitRedy }})
	}
	return all
}

// Calibrate measures the times.
func Calibrate(ctx context.Context, c Calibration, progress bench.Progress) (advisor.Times, error) {
	var t advisor.Times
	for _, s := range c.stalls() {
		loaded, alone, err := c.measure(ctx, s, progress)
		if err != nil {
			return t, fmt.Errorf("advise: measuring reads from %s: %w", s.name, err)
		}
		place := s.place(&t)
		if place.Busy, err = c.timeOf(s, &loaded, &t, func(t advisor.Time) float64 { return t.Busy }); err != nil {
			return t, err
		}
		if place.Latency, err = c.timeOf(s, &alone, &t, func(t advisor.Time) float64 { return t.Latency }); err != nil {
			return t, err
		}
	}
	r, grown, err := c.write(ctx, progress)
	if err != nil {
		return t, fmt.Errorf("advise: measuring writes: %w", err)
	}
	if kib := grown / 1024 / float64(r.Ops); kib > 0 {
		t.Append = max(float64(c.Threads)/r.Mops-t.Memory.Busy, 0) / kib
	}
	return t, nil
}

// timeOf returns the time of an operation in one place, from a run in which other places also answered.
// Their times are known: memory is measured first, the SSD next.
func (c *Calibration) timeOf(s stall, r *ycsb.Result, known *advisor.Times, part func(advisor.Time) float64) (float64, error) {
	share := s.reached(r)
	if share < 0.2 {
		return 0, fmt.Errorf("advise: measuring reads from %s: only %.0f %% of them were answered there", s.name, 100*share)
	}
	rest := float64(c.Threads) / r.Mops
	if s.name != "memory" {
		rest -= r.HitMemory * part(known.Memory)
	}
	if s.name == "cache" {
		rest -= r.HitSSD * part(known.SSD)
	}
	return max(rest/share, 0), nil
}

// measure measures one small store, with c.Depth operations of each thread under way, and with one.
func (c *Calibration) measure(ctx context.Context, s stall, progress bench.Progress) (loaded, alone ycsb.Result, err error) {
	err = c.open(ctx, c.spec(s), progress, func(t *ycsb.Target, spec ycsb.Spec) error {
		if loaded, err = ycsb.Run(ctx, t, spec, progress); err != nil {
			return err
		}
		spec.Depth, spec.Warmup, spec.Seed = 1, 0, spec.Seed+1
		alone, err = ycsb.Run(ctx, t, spec, progress)
		return err
	})
	return loaded, alone, err
}

// spec returns the experiment on a small store.
func (c *Calibration) spec(s stall) ycsb.Spec {
	data := ycsb.LogBytes(c.Records, c.ValueSize)
	return ycsb.Spec{
		Shape: ycsb.Shape{
			Records: c.Records, ValueSize: c.ValueSize, Memory: max(int64(float64(data)*s.memory), 1<<20), ReadCache: s.cache,
			Cache: 2 * data, Transport: c.Transport, Net: c.Net, Depth: c.Depth, Written: s.mix.Writes(), CacheServer: c.Server,
		},
		Device: s.device, Mix: s.mix, Distribution: ycsb.Uniform, Threads: c.Threads, Duration: c.Duration, Warmup: c.Duration, Seed: 1,
	}
}

// write measures updates of a store of which little is in memory, and returns how much its log has grown.
func (c *Calibration) write(ctx context.Context, progress bench.Progress) (r ycsb.Result, grown float64, err error) {
	spec := c.spec(stall{device: ycsb.SSD, mix: ycsb.MixWrite, memory: 0.1})
	spec.Warmup = 0
	err = c.open(ctx, spec, progress, func(t *ycsb.Target, spec ycsb.Spec) error {
		before := t.Store.Metrics().Log.Tail
		r, err = ycsb.Run(ctx, t, spec, progress)
		grown = float64(t.Store.Metrics().Log.Tail - before)
		return err
	})
	return r, grown, err
}

// open opens and loads a store for use.
func (c *Calibration) open(ctx context.Context, spec ycsb.Spec, progress bench.Progress, use func(*ycsb.Target, ycsb.Spec) error) error {
	return withTarget(ctx, filepath.Join(c.Dir, "store"), spec, progress, use)
}

// withTarget opens and loads a store, and removes it after its use.
func withTarget(ctx context.Context, dir string, spec ycsb.Spec, progress bench.Progress, use func(*ycsb.Target, ycsb.Spec) error) (err error) {
	storage, err := ycsb.OpenStorage(ctx, spec.Device, spec.Shape, dir)
	if err != nil {
		return err
	}
	store, err := ycsb.OpenStore(storage.Device, spec.Shape)
	if err != nil {
		return errors.Join(err, storage.Device.Close(), storage.Release())
	}
	t := &ycsb.Target{Store: store, Storage: *storage}
	defer func() { err = errors.Join(err, t.Close(), os.RemoveAll(dir)) }()
	if err := ycsb.Load(ctx, store, spec.Shape, spec.Threads, progress); err != nil {
		return err
	}
	return use(t, spec)
}
