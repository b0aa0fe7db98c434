package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

const (
	// laps is how many slices a cell's time is cut into.
	laps = 9
	// warmShare is the share of a slice that the unmeasured lap 0 takes.
	warmShare = 4
	// collectIn is the lap in whose slices a garbage collection is forced.
	collectIn = 5
)

// bench is one run.
type bench struct {
	spec    *Spec
	store   *kv.Store
	workers []*worker
	samples []metrics.Sample
	yard    int64 // bytes of the yardstick's memory
}

// Run measures what spec asks for. The error is one of the store, a value that
// was not the record's, or ctx's.
func Run(ctx context.Context, spec Spec, progress ycsb.Progress) (report *Report, err error) {
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("storebench: %w", err)
	}
	if progress == nil {
		progress = ycsb.NoProgress{}
	}
	report = &Report{Machine: ycsb.Machine(), Spec: spec}
	b := &bench{spec: &spec, samples: newSamples()}
	began := time.Now()
	if b.store, err = openStore(ctx, &spec, progress); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.store.Close()) }()
	report.Load.Seconds = time.Since(began).Seconds()
	report.Load.Mops = float64(spec.Records) / 1e6 / report.Load.Seconds

	m := b.store.Metrics()
	report.FootprintBytes = m.Index.Bytes + m.Log.Tail - m.Log.Begin
	memory, words, err := newYardstickMemory(report.FootprintBytes, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, mem.Free(memory)) }()
	b.yard = int64(len(memory))

	var peer *pebblePeer
	if spec.Peer != "" {
		if peer, err = openPebble(ctx, &spec, progress); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, peer.close()) }()
		report.Peer = peer.describe(&spec)
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.hire(ctx, words, progress); err != nil {
		return nil, err
	}
	cells, limits := plan(&spec, peer)
	if err := b.measure(ctx, cells, progress); err != nil {
		return nil, err
	}
	if err := inPlace(b.store, &spec); err != nil {
		return nil, err
	}
	report.fill(cells, limits, b.store.Metrics())
	return report, nil
}

// hire makes the workers, as many as are ever needed at once.
func (b *bench) hire(ctx context.Context, words []uint64, progress ycsb.Progress) error {
	b.workers = make([]*worker, slices.Max(b.spec.Threads))
	progress.Begin("draw numbers", int64(len(b.workers)))
	defer progress.End()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range b.workers {
		group.Go(func() (err error) {
			if err = ctx.Err(); err == nil {
				b.workers[i], err = newWorker(b.spec, i, b.store, words)
			}
			progress.Add(1)
			return err
		})
	}
	return group.Wait()
}

// close closes the workers' sessions.
func (b *bench) close() error {
	var errs []error
	for _, w := range b.workers {
		if w != nil {
			errs = append(errs, w.session.Close())
		}
	}
	return errors.Join(errs...)
}

// measure gives all cells their slices, lap after lap.
func (b *bench) measure(ctx context.Context, cells []*cell, progress ycsb.Progress) error {
	slice := b.spec.Duration / laps
	progress.Begin("measure", int64(len(cells))*int64(slice/warmShare+laps*slice))
	defer progress.End()
	for lap := range laps + 1 {
		for _, c := range cells {
			lasts := slice
			if lap == 0 {
				lasts = slice / warmShare
			}
			if err := b.slice(ctx, c, lasts, lap); err != nil {
				return fmt.Errorf("storebench: %v: %w", c, err)
			}
			progress.Add(int64(lasts))
		}
	}
	return nil
}

// slice runs a cell's threads for that long, and keeps what they show, unless it
// is of lap 0.
func (b *bench) slice(ctx context.Context, c *cell, lasts time.Duration, lap int) error {
	tallies := make([]tally, c.threads)
	start := make(chan struct{})
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range tallies {
		group.Go(func() (err error) {
			<-start
			tallies[i], err = b.workers[i].slice(groupCtx, c, lasts)
			return err
		})
	}
	before, metricsBefore, began := runtimeUsage(b.samples), b.store.Metrics(), time.Now()
	close(start)
	if lap == collectIn {
		runtime.GC()
	}
	err := group.Wait()
	if err = errors.Join(err, ctx.Err()); err != nil || lap == 0 {
		return err
	}
	after := runtimeUsage(b.samples)
	c.seconds += time.Since(began).Seconds()
	c.allocs += after.allocs - before.allocs
	c.gcSeconds += after.gcSeconds - before.gcSeconds
	c.reads(metricsBefore, b.store.Metrics())
	c.rss = mem.Resident() - b.yard
	for _, t := range tallies {
		c.operations += uint64(t.operations)
	}
	c.samples = append(c.samples, sampleOf(tallies))
	return nil
}

// fill makes rows and limits of what the cells have come to.
func (r *Report) fill(cells []*cell, limits map[int]yards, m kv.Metrics) {
	for _, threads := range r.Spec.Threads {
		y := limits[threads]
		limit := Limit{
			Threads: threads, LinesPerSecond: 2e6 * y.lines.mops(), GeneratorNanos: y.generatorNanos(),
		}
		if y.copies != nil {
			limit.CopyMops = y.copies.mops()
		}
		r.Limits = append(r.Limits, limit)
	}
	for _, c := range cells {
		if c.store != "" {
			r.Rows = append(r.Rows, c.row(&r.Spec, m, limits[c.threads]))
		}
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Threads > 1 {
			row.Scaling = row.Mops / r.mops(row.Store, row.Op, row.Distribution, row.Mode, 1)
		}
		if row.Store != r.Spec.Peer {
			row.RatioToPeer = row.Mops / r.mops(r.Spec.Peer, row.Op, row.Distribution, Plain, row.Threads)
		}
	}
}

// mops is the throughput of a row; without such a row infinity, over which every
// ratio is 0.
func (r *Report) mops(store string, op Op, d ycsb.Distribution, mode Mode, threads int) float64 {
	for _, row := range r.Rows {
		if row.Store == store && row.Op == op && row.Distribution == d && row.Mode == mode && row.Threads == threads {
			return row.Mops
		}
	}
	return math.Inf(1)
}
