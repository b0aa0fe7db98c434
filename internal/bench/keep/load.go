package keep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/redytier"
)

// load reads records of a cache at random, with more requests pending than its configuration
// allows, until it is stopped.
type load struct {
	cache  *redytier.Cache
	done   atomic.Int64 // reads that have ended
	failed atomic.Int64
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

func startLoad(ctx context.Context, c *redytier.Cache) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cache: c, cancel: cancel}
	for i := range pending {
		l.ended.Go(func() { l.run(ctx, rand.NewPCG(uint64(i), 1)) })
	}
	return l
}

// run has one request pending at a time.
func (l *load) run(ctx context.Context, rng *rand.PCG) {
	buf, done := make([]byte, recordSize), make(chan error, 1)
	for ctx.Err() == nil {
		addr := int64(rng.Uint64()%(capacity/recordSize)) * recordSize
		err := l.cache.Read(ctx, buf, addr, func(_ int, err error) { done <- err })
		if err == nil {
			err = <-done
		}
		switch {
		case err == nil:
			l.done.Add(1)
		case errors.Is(err, redytier.ErrDeleted) || ctx.Err() != nil:
			return
		default:
			l.failed.Add(1)
		}
	}
}

func (l *load) stop() {
	l.cancel()
	l.ended.Wait()
}

// kept counts the loads of which a window kept the SLO: the throughput is all that
// it asks for, and so is the latency of the requests that the configuration allows, which follows
// by Little's law.
func kept(loads []*load, before []int64, took time.Duration) (n int) {
	for i, l := range loads {
		c := l.cache.Configuration()
		rate := float64(l.done.Load()-before[i]) / took.Seconds()
		latency := float64(c.ClientThreads*c.BatchSize*c.QueueDepth) / rate
		if rate >= slo.MinThroughput && latency <= slo.MaxLatency.Seconds() {
			n++
		}
	}
	return n
}

// measure counts the windows of all loads for that long, and those in which the SLO was kept.
func measure(ctx context.Context, loads []*load, lasts, window time.Duration) (windows, good int, err error) {
	before := make([]int64, len(loads))
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		began := time.Now()
		for i, l := range loads {
			before[i] = l.done.Load()
		}
		if err := pause(ctx, window); err != nil {
			return 0, 0, err
		}
		windows += len(loads)
		good += kept(loads, before, time.Since(began))
	}
	for i, l := range loads {
		if n := l.failed.Load(); n > 0 {
			return 0, 0, fmt.Errorf("%d reads of cache %d have failed", n, i)
		}
	}
	return windows, good, nil
}

// pause waits; an error says that ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
