package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// collectIn is the round in whose slices a garbage collection is forced.
const collectIn = 5

// run is one run.
type run struct {
	spec    *Spec
	store   *kv.Store
	workers []*worker
	yard    int64 // bytes of the yardstick's memory
}

// Run carries out a spec. The error is the store's, a value that is not the record's, or
// ctx's.
func Run(ctx context.Context, spec Spec, progress bench.Progress) (report *Report, err error) {
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("storebench: %w", err)
	}
	progress = bench.OrQuiet(progress)
	report = &Report{Machine: machine.Describe(), Spec: spec}
	b := &run{spec: &spec}
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
	if err := b.makeWorkers(ctx, words, progress); err != nil {
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

// makeWorkers makes as many workers as the largest number of threads.
func (b *run) makeWorkers(ctx context.Context, words []uint64, progress bench.Progress) error {
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
func (b *run) close() error {
	var errs []error
	for _, w := range b.workers {
		if w != nil {
			errs = append(errs, w.session.Close())
		}
	}
	return errors.Join(errs...)
}

// measure measures all cells.
func (b *run) measure(ctx context.Context, cells []*cell, progress bench.Progress) error {
	samples, err := bench.NewPlan(len(cells), b.spec.Duration).Run(ctx, progress,
		func(ctx context.Context, i, round int, lasts time.Duration) (bench.Sample, error) {
			s, err := b.slice(ctx, cells[i], lasts, round)
			if err != nil {
				err = fmt.Errorf("storebench: %v: %w", cells[i], err)
			}
			return s, err
		})
	for i := range samples {
		cells[i].samples = samples[i]
	}
	return err
}

// slice runs the threads of a cell for that long. Round 0 does not count.
func (b *run) slice(ctx context.Context, c *cell, lasts time.Duration, round int) (bench.Sample, error) {
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
	before, began := b.store.Metrics(), time.Now()
	close(start)
	if round == collectIn {
		runtime.GC()
	}
	err := group.Wait()
	seconds := time.Since(began).Seconds()
	if round > 0 {
		c.reads(before, b.store.Metrics())
		c.rss = mem.Resident() - b.yard
	}
	return sampleOf(tallies, seconds), err
}

// fill sets rows and limits from the cells.
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
		if c.store == "" {
			continue
		}
		row := c.row(&r.Spec, m, limits[c.threads])
		if c.threads > 1 {
			row.Scaling = c.over(find(cells, c.store, c.op, c.distribution, c.mode, 1))
		}
		if r.Spec.Peer != "" && c.store != r.Spec.Peer {
			row.RatioToPeer = c.over(find(cells, r.Spec.Peer, c.op, c.distribution, Plain, c.threads))
		}
		r.Rows = append(r.Rows, row)
	}
}

// find returns a cell, or nil if there is no such cell.
func find(cells []*cell, store string, op Op, d ycsb.Distribution, mode Mode, threads int) *cell {
	for _, c := range cells {
		if c.store == store && c.op == op && c.distribution == d && c.mode == mode && c.threads == threads {
			return c
		}
	}
	return nil
}
