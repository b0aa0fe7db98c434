package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/internal/machine"
	"github.com/redykv/redykv/ycsb"
)

// cell is a subject under a number of goroutines.
type cell struct {
	subject    Subject
	goroutines int
}

// cells are the cells of a run. The disk has one goroutine: what others would write at the same
// time is not one commit.
func (s *Spec) cells() (cells []cell) {
	for _, subject := range s.subjects() {
		for _, n := range s.Goroutines {
			if subject != Disk || n == 1 {
				cells = append(cells, cell{subject, n})
			}
		}
	}
	return cells
}

// Run measures all cells alternately.
func Run(ctx context.Context, s Spec, progress bench.Progress) (_ *Report, err error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("durablebench: %w", err)
	}
	progress = bench.OrQuiet(progress)
	stores := make(map[Subject]store)
	defer func() {
		for _, st := range stores {
			err = errors.Join(err, st.close())
		}
	}()
	for _, subject := range s.subjects() {
		if stores[subject], err = s.open(subject); err != nil {
			delete(stores, subject)
			return nil, fmt.Errorf("durablebench: opening %s: %w", subject, err)
		}
	}
	cells := s.cells()
	slices := make([][]slice, len(cells))
	progress.Begin("measure", int64(rounds*len(cells)))
	defer progress.End()
	for range rounds {
		for i, c := range cells {
			one, err := s.measure(ctx, stores[c.subject], c.goroutines)
			if err != nil {
				return nil, fmt.Errorf("durablebench: %s, %d goroutines: %w", c.subject, c.goroutines, err)
			}
			slices[i] = append(slices[i], one)
			progress.Add(1)
		}
	}
	return newReport(s, machine.Describe(), cells, slices), nil
}

// slice is what one cell did in one round.
type slice struct {
	perSecond float64
	latencies *hdrhistogram.Histogram // in nanoseconds
}

// longest is the greatest latency that is recorded as it is.
const longest = time.Minute

// measure lets goroutines write for a slice.
func (s *Spec) measure(ctx context.Context, st store, goroutines int) (slice, error) {
	began := time.Now()
	until := began.Add(s.Duration / rounds)
	sum := hdrhistogram.New(1, int64(longest), 3)
	var mu sync.Mutex // guards sum and failed
	var failed error
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			latencies, err := s.write(ctx, st, until)
			mu.Lock()
			defer mu.Unlock()
			sum.Merge(latencies)
			failed = errors.Join(failed, err)
		})
	}
	group.Wait()
	return slice{float64(sum.TotalCount()) / time.Since(began).Seconds(), sum}, failed
}

// write writes random records, one at a time, at least one.
func (s *Spec) write(ctx context.Context, st store, until time.Time) (_ *hdrhistogram.Histogram, err error) {
	latencies := hdrhistogram.New(1, int64(longest), 3)
	write, end := st.writer()
	defer func() { err = errors.Join(err, end()) }()
	key, value := make([]byte, ycsb.KeySize), make([]byte, s.ValueSize)
	for {
		n := uint64(rand.Int64N(s.Records))
		record.PutKey(key, n)
		record.StampEnds(value, n)
		began := time.Now()
		if err := write(ctx, key, value); err != nil {
			return latencies, err
		}
		ended := time.Now()
		// RecordValue fails only for values out of range.
		_ = latencies.RecordValue(int64(min(max(ended.Sub(began), 1), longest)))
		if ended.After(until) {
			return latencies, ctx.Err()
		}
	}
}
