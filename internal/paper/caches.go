package paper

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	cachebench "github.com/redykv/redykv/internal/bench/cache"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/redytier"
	"github.com/redykv/redykv/server"
	"github.com/redykv/redykv/ycsb"
)

// Caches is a trial that compares Redy caches with their transport: reads and writes at random
// addresses, in closed loops.
type Caches struct {
	Name     string
	Mode     cachebench.Mode
	Ops      []cachebench.Op
	Sizes    []int // bytes of a request
	InFlight int   // as in cachebench.Spec
	Variants []CacheVariant
	Servers  server.Pinning // pinning of the servers' threads, in all variants
	// Over is the variable on the X axis.
	Over Over
}

// CacheVariant is a configuration and the optimisations that are switched off in it.
type CacheVariant struct {
	Name    string
	C, S, Q int // numbers of client and server threads; Many means as many as the scale has
	// B is the batch size; 0 means as many requests as fill 4 KB (R54).
	B      int
	Tuning redytier.Tuning
}

// Many stands for the scale's number of threads.
const Many = -1

// Over names the variable of a trial of caches.
type Over string

// Variables of a trial of caches.
const (
	Sizes    Over = "sizes"    // size of a request; a series is an operation of a variant
	Variants Over = "variants" // variants in order, with their names; a series is an operation
)

// Series of the transport alone.
const rawSeries = "raw"

func (t Caches) trialName() string { return t.Name }

func (t Caches) plan(b *Bench) (*plan, error) {
	p := &cachePlan{trial: t, bench: b}
	var turns []turn
	for round := 1; round <= b.Rounds; round++ {
		turns = append(turns, p.turn(round))
	}
	// Every variant has a cache, and the transport alone has as much as one more.
	return &plan{turns: turns, end: p.end, need: need{memory: int64(len(t.Variants)+1) * b.Capacity}}, nil
}

// cachePlan is the state of a trial of caches. Its manager and transport serve all turns.
type cachePlan struct {
	trial Caches
	bench *Bench

	mgr    *cachebench.Manager
	raw    *cachebench.Raw
	endRaw func() error
}

// spec returns the measurement for one request size.
func (p *cachePlan) spec(size int) cachebench.Spec {
	t := p.trial
	s := cachebench.Spec{
		Transport: p.bench.Transport, Net: p.bench.Net, Modes: []cachebench.Mode{t.Mode}, Ops: t.Ops, Sizes: []int{size}, InFlight: t.InFlight,
		Capacity: p.bench.Capacity, Duration: p.bench.Cell,
	}
	for _, v := range t.Variants {
		s.Variants = append(s.Variants, cachebench.Variant{Config: v.config(size, p.bench.Threads), Tuning: v.Tuning})
	}
	s.Idle = s.DefaultIdle(runtime.NumCPU())
	return s
}

// batchBytes is the size of a batch beyond which throughput no longer grows (section 5.1).
const (
	batchBytes = 4096
	mostBatch  = 512 // the most that a manager grants, with 8-byte records
)

// config returns the variant's configuration for requests of size bytes. many replaces Many.
func (v CacheVariant) config(size, many int) redytier.Configuration {
	c := redytier.Configuration{ClientThreads: v.C, ServerThreads: v.S, BatchSize: v.B, QueueDepth: v.Q}
	if v.C == Many {
		c.ClientThreads = many
	}
	if v.S == Many {
		c.ServerThreads = many
	}
	if v.B == 0 {
		c.BatchSize = min((batchBytes+size-1)/size, mostBatch)
	}
	return c
}

func (p *cachePlan) turn(round int) turn {
	t := p.trial
	var series []string
	for _, op := range t.Ops {
		series = append(series, t.series(rawSeries, op))
		for _, v := range t.Variants {
			series = append(series, t.series(v.Name, op))
		}
	}
	cells := len(t.Sizes) * len(t.Ops) * (2*len(t.Variants) + 1)
	return turn{
		name:   fmt.Sprintf("round %d", round),
		series: series,
		lasts:  time.Duration(cells) * p.bench.Cell,
		measure: func(ctx context.Context, progress ycsb.Progress) ([]Measurement, error) {
			return p.measure(ctx, round, progress)
		},
	}
}

// series returns the series' name of a variant's operation.
func (t Caches) series(variant string, op cachebench.Op) string {
	if t.Over == Variants && variant != rawSeries {
		return string(op)
	}
	return variant + " " + string(op)
}

func (p *cachePlan) measure(ctx context.Context, round int, progress ycsb.Progress) ([]Measurement, error) {
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	var all []Measurement
	for _, size := range p.trial.Sizes {
		some, err := p.measureSize(ctx, size, round, progress)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (p *cachePlan) measureSize(ctx context.Context, size, round int, progress ycsb.Progress) ([]Measurement, error) {
	spec := p.spec(size)
	report, err := cachebench.Run(ctx, p.mgr, p.raw, spec, p.bench.Log, progress)
	if err != nil {
		return nil, err
	}
	var all []Measurement
	for i, v := range p.trial.Variants {
		for _, op := range p.trial.Ops {
			config := spec.Variants[i].Config
			all = append(all, p.measurement(report.Find(config, cachebench.TuningString(v.Tuning), op), v.Name, i, round))
			// The transport alone has as many threads, and as many requests pending as Redy
			// has batches.
			if p.trial.Over == Variants || i == 0 { // over sizes, one line of the transport is enough
				all = append(all, p.measurement(report.FindRaw(config.ClientThreads, config.QueueDepth, op), rawSeries, i, round))
			}
		}
	}
	return all, nil
}

// ready starts the manager and the transport.
func (p *cachePlan) ready(ctx context.Context) (err error) {
	if p.mgr == nil {
		if p.mgr, err = p.bench.manager(ctx, cachebench.Servers{Pinning: p.trial.Servers}, manager.EmbedOptions{}); err != nil {
			return err
		}
	}
	if p.raw != nil {
		return nil
	}
	provider, err := transport.Open(p.bench.Transport)
	if err != nil {
		return err
	}
	spec := p.spec(p.trial.Sizes[0]) // all sizes have the same numbers of threads
	addr, end, err := p.bench.Raw(ctx, provider, spec.RawMemory())
	if err != nil {
		return errors.Join(err, provider.Close())
	}
	p.raw = &cachebench.Raw{Provider: provider, Addr: addr}
	p.endRaw = func() error { return errors.Join(end(), provider.Close()) }
	return nil
}

func (p *cachePlan) end() (err error) {
	if p.endRaw != nil {
		err = p.endRaw()
	}
	if p.mgr != nil {
		err = errors.Join(err, p.mgr.Close())
	}
	return err
}

func (p *cachePlan) measurement(row *cachebench.Row, variant string, place, round int) Measurement {
	m := Measurement{
		Trial: p.trial.Name, Series: p.trial.series(variant, row.Op), X: float64(row.Size), Round: round,
		Transport: row.Transport, Net: row.Net,
		Values: map[string]float64{"mops": row.Mops, "mean_us": row.MeanUs, "p50_us": row.P50Us, "p99_us": row.P99Us},
	}
	if p.trial.Over == Variants {
		m.X, m.Label = float64(place), p.trial.Variants[place].Name
	}
	if !row.Raw() {
		m.Setting = fmt.Sprintf("c,s,b,q = %d,%d,%d,%d, switched off: %s, %d pending requests of %v, cache of %v",
			row.C, row.S, row.B, row.Q, row.Tuning, row.Depth, units.Size(row.Size), units.Size(p.bench.Capacity))
	} else {
		m.Setting = fmt.Sprintf("%d threads with a queue pair each, %d pending requests of %v in all", row.C, row.Depth, units.Size(row.Size))
	}
	return m
}
