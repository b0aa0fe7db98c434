package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/redytier"
)

// The paths of rows.
const (
	pathRedy   = "redy"
	pathFabric = "fabric"
)

// thread is one thread of a cell. It belongs to one goroutine at a time.
type thread interface {
	// slice runs for that long, and until no operation is pending.
	slice(ctx context.Context, op Op, size int, lasts time.Duration) (bench.Sample, error)
	close() error
}

// cell is one combination to measure.
type cell struct {
	path    string
	mode    Mode
	config  redytier.Configuration // of path fabric: only the number of threads
	tuning  string
	depth   int // of all threads together
	op      Op
	size    int
	threads []thread
}

// Run carries out a spec on caches in memory that mgr finds, and on raw, unless it is nil.
// progress may be nil.
func Run(ctx context.Context, mgr redytier.Manager, raw *Raw, spec Spec, log *slog.Logger, progress bench.Progress) (report *Report, err error) {
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	network, err := fabric.ParseNetwork(spec.Net)
	if err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	spec.Net = network.String()
	b := &caches{spec: &spec, log: log}
	defer func() { err = errors.Join(err, b.close()) }()
	var cells []cell
	if raw != nil {
		clients, dialErr := raw.dial(ctx, &spec)
		defer func() {
			for _, c := range clients {
				err = errors.Join(err, c.Close())
			}
		}()
		if dialErr != nil {
			return nil, fmt.Errorf("cachebench: %w", dialErr)
		}
		for _, l := range rawLoads(&spec) {
			c := cell{path: pathFabric, config: redytier.Configuration{ClientThreads: l.threads}, depth: l.threads * l.depth}
			for _, client := range clients[:l.threads] {
				c.threads = append(c.threads, rawThread{client, l.depth})
			}
			cells = append(cells, plan(&spec, c)...)
		}
	}
	for _, v := range spec.Variants {
		more, err := b.open(ctx, mgr, v.Config, v.Tuning)
		if err != nil {
			return nil, err
		}
		cells = append(cells, more...)
	}
	samples, err := bench.NewPlan(len(cells), spec.Duration).Run(ctx, progress,
		func(ctx context.Context, i, _ int, lasts time.Duration) (bench.Sample, error) {
			return cells[i].slice(ctx, lasts)
		})
	if err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	report = &Report{Machine: machine.Describe(), Spec: spec}
	for i := range cells {
		report.Rows = append(report.Rows, cells[i].row(&spec, bench.MedianSample(samples[i])))
	}
	report.relate(samples)
	return report, nil
}

// caches has the caches of a run, with their threads.
type caches struct {
	spec    *Spec
	log     *slog.Logger
	all     []*redytier.Cache
	threads []thread
}

// open makes a cache of a configuration and tuning, fills it, and plans its cells.
func (b *caches) open(ctx context.Context, mgr redytier.Manager, config redytier.Configuration, tuning redytier.Tuning) ([]cell, error) {
	s := b.spec
	c, err := redytier.Create(ctx, mgr, redytier.Config{
		Capacity: s.Capacity, Configuration: config, Transport: s.Transport, Net: s.Net, Tuning: tuning, Logger: b.log, Progress: s.Pending,
	})
	if err != nil {
		return nil, fmt.Errorf("cachebench: %w", err)
	}
	b.all = append(b.all, c)
	if err := fill(ctx, c); err != nil {
		return nil, err
	}
	var cells []cell
	for _, mode := range s.Modes {
		threads, err := newThreads(mode, s, c, config)
		b.threads = append(b.threads, threads...)
		if err != nil {
			return nil, err
		}
		cells = append(cells, plan(s, cell{
			path: pathRedy, mode: mode, config: config, tuning: TuningString(tuning),
			depth: len(threads) * s.inFlight(config), threads: threads,
		})...)
	}
	return cells, nil
}

// plan returns cells like c for every operation and size.
func plan(s *Spec, c cell) (cells []cell) {
	for _, op := range s.Ops {
		for _, size := range s.Sizes {
			c.op, c.size = op, size
			cells = append(cells, c)
		}
	}
	return cells
}

// newThreads makes the threads of a configuration. Even with an error the caller closes those
// that it returns.
func newThreads(mode Mode, s *Spec, c *redytier.Cache, config redytier.Configuration) (threads []thread, err error) {
	for i := range config.ClientThreads {
		l := newLoop(s, c.Capacity(), s.inFlight(config), uint64(i))
		if mode == Callback {
			threads = append(threads, newCaller(l, c))
			continue
		}
		session, err := newSessionLoop(l, c)
		if err != nil {
			return threads, err
		}
		threads = append(threads, session)
	}
	return threads, nil
}

func closeAll(threads []thread) (err error) {
	for _, t := range threads {
		err = errors.Join(err, t.close())
	}
	return err
}

func (b *caches) close() error {
	err := closeAll(b.threads)
	for _, c := range b.all {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		err = errors.Join(err, c.Delete(ctx))
		cancel()
	}
	return err
}

// closeTimeout bounds the time in which the manager returns a cache's memory.
const closeTimeout = 10 * time.Second

// fill writes all of a cache, since the kernel allocates memory when it is written first.
func fill(ctx context.Context, c *redytier.Cache) error {
	s, err := c.NewSession(1)
	if err != nil {
		return fmt.Errorf("cachebench: %w", err)
	}
	err = fillRange(ctx, s, 0, c.Capacity())
	if err = errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("cachebench: fill the cache: %w", err)
	}
	return nil
}

// fillRange writes n bytes of a cache from an address on, none of them zero.
func fillRange(ctx context.Context, s *redytier.Session, from, n int64) (err error) {
	block := make([]byte, MaxSize)
	for i := range block {
		block[i] = byte(i) | 1
	}
	var done [1]device.Completion
	for end := from + n; from < end && err == nil; from += int64(len(block)) {
		if err = s.Write(block[:min(int64(len(block)), end-from)], from, 0); err == nil {
			err = s.Wait(ctx)
		}
		if err == nil && s.Poll(done[:]) == 1 {
			err = done[0].Err
		}
	}
	return err
}

// slice runs all threads of a cell at once.
func (c *cell) slice(ctx context.Context, lasts time.Duration) (bench.Sample, error) {
	samples := make([]bench.Sample, len(c.threads))
	group, ctx := errgroup.WithContext(ctx)
	for i, t := range c.threads {
		group.Go(func() (err error) {
			samples[i], err = t.slice(ctx, c.op, c.size, lasts)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return bench.Sample{}, fmt.Errorf("%s %s %s of %d bytes: %w", c.path, c.mode, c.op, c.size, err)
	}
	var all bench.Sample
	for _, s := range samples {
		all.Join(s)
	}
	return all, nil
}

func (c *cell) row(s *Spec, sample bench.Sample) Row {
	return Row{
		Path: c.path, Mode: c.mode, Transport: s.Transport, Net: s.Net,
		C: c.config.ClientThreads, S: c.config.ServerThreads, B: c.config.BatchSize, Q: c.config.QueueDepth,
		Tuning: c.tuning, Depth: c.depth, Op: c.op, Size: c.size, Figures: sample.Figures(),
	}
}
