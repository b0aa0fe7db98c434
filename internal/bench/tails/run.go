package tails

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
)

// cell is an event, with the number of records that are used meanwhile.
type cell struct {
	event Event
	used  int64
}

// slice is what one cell did in one round.
type slice struct {
	latencies *hdrhistogram.Histogram // in nanoseconds, from when operations were due
	ops       uint64
	seconds   float64
	happened  int64   // how often the event was over
	device    float64 // share of the reads that the device answered
}

// Run measures all cells alternately.
func Run(ctx context.Context, s Spec, progress bench.Progress) (*Report, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("tailsbench: %w", err)
	}
	progress = bench.OrQuiet(progress)
	cells := s.cells()
	progress.Begin("measure", int64(rounds*len(cells)+1))
	defer progress.End()
	if s.Rate == 0 {
		most, err := s.slice(ctx, cell{Quiet, s.Records}, 0, s.Duration/rounds)
		if err != nil {
			return nil, fmt.Errorf("tailsbench: the most that the loop does: %w", err)
		}
		s.Rate = float64(most.ops) / most.seconds / 2
	}
	progress.Add(1)
	slices := make([][]slice, len(cells))
	for range rounds {
		for i, c := range cells {
			one, err := s.slice(ctx, c, 1e9/s.Rate, s.Duration/rounds)
			if err != nil {
				return nil, fmt.Errorf("tailsbench: %s: %w", c.event, err)
			}
			slices[i] = append(slices[i], one)
			progress.Add(1)
		}
	}
	return newReport(s, machine.Describe(), cells, slices), nil
}

// slice measures a cell with a store of its own. step is the time between two operations, in
// nanoseconds.
func (s *Spec) slice(ctx context.Context, c cell, step float64, lasts time.Duration) (_ slice, err error) {
	l, err := newLoop(s.Records-c.used, c.used, s.ValueSize, 1)
	if err != nil {
		return slice{}, err
	}
	h := &happening{spec: s, event: c.event, next: s.Records}
	if c.event != Machine {
		var dir string
		if dir, err = os.MkdirTemp(s.Dir, string(c.event)+"-"); err != nil {
			return slice{}, err
		}
		if h.store, err = s.open(ctx, c.event, dir); err != nil {
			return slice{}, errors.Join(err, os.RemoveAll(dir))
		}
		defer func() { err = errors.Join(err, h.store.Close(), os.RemoveAll(dir)) }()
		if err = h.prepare(ctx); err != nil {
			return slice{}, err
		}
		l.session = h.store.NewSession()
	}
	return s.measure(ctx, l, h, step, lasts)
}

// measure lets the loop run while the event is repeated.
func (s *Spec) measure(ctx context.Context, l *loop, h *happening, step float64, lasts time.Duration) (slice, error) {
	repeating, stop := context.WithCancel(ctx)
	defer stop()
	var happened atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for repeating.Err() == nil {
			if err := h.once(repeating); err != nil {
				ended <- err
				return
			}
			if repeating.Err() == nil || h.grown.Load() {
				happened.Add(1)
			}
		}
		ended <- nil
	}()
	enough := func() bool { return h.over(&happened) || len(ended) > 0 }
	began := time.Now()
	err := l.run(ctx, step, lasts, enough)
	seconds := time.Since(began).Seconds()
	stop()
	err = errors.Join(err, <-ended)
	one := slice{latencies: l.latencies, ops: l.ops, seconds: seconds, happened: happened.Load()}
	if l.session != nil {
		err = errors.Join(err, l.session.Close())
		one.device = deviceShare(h.store.Metrics())
	}
	return one, err
}

// deviceShare returns the share of the reads that the device answered.
func deviceShare(m kv.Metrics) float64 {
	device := uint64(0)
	for _, n := range m.ReadsFrom.Tier {
		device += n
	}
	return float64(device) / float64(max(device+m.ReadsFrom.Memory+m.ReadsFrom.Cache, 1))
}

// open opens a store in a directory, and loads it.
func (s *Spec) open(ctx context.Context, e Event, dir string) (*kv.Store, error) {
	ssd, err := ssdtier.Open(dir)
	if err != nil {
		return nil, err
	}
	opts := s.options(e)
	opts.Device = ssd
	store, err := kv.Open(opts)
	if err != nil {
		return nil, errors.Join(err, ssd.Close())
	}
	if err := record.Load(ctx, store, s.Records, s.ValueSize, 2, nil); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}
