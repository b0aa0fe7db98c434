package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/device"
)

// beside reads a part of the log, in turns without a refill and beside one. The refill goes on
// where it was paused. When it has ended, the cache loses its memory again.
func (b *refillBench) beside(ctx context.Context, from, to int64) (r BesideRefill, err error) {
	var alone, with amount
	for turns := 0; turns < b.spec.Turns; {
		if err := b.lose(); err != nil {
			return r, err
		}
		if _, err := b.refilled(ctx, b.missing()-b.spec.Capacity/4); err != nil {
			return r, err
		}
		b.remote.pause(true)
		readers := b.startReaders(ctx, from, to)
		b.turn(ctx, readers) // warms them up
		for ; turns < b.spec.Turns && b.missing() > 0 && ctx.Err() == nil; turns++ {
			alone.add(b.turn(ctx, readers))
			b.remote.pause(false)
			with.add(b.turn(ctx, readers))
			b.remote.pause(true)
		}
		if err := errors.Join(readers.stop(), context.Cause(ctx)); err != nil {
			return r, err
		}
	}
	b.remote.pause(false)
	if _, err := b.refilled(ctx, 0); err != nil {
		return r, err
	}
	r.AloneMops, r.BesideMops = ratio(alone.reads, alone.seconds)/1e6, ratio(with.reads, with.seconds)/1e6
	r.Share, r.RefillBytesPerSecond = ratio(r.BesideMops, r.AloneMops), ratio(with.filled, with.seconds)
	return r, nil
}

// amount is what was done in some turns.
type amount struct {
	reads, filled float64 // filled is in bytes
	seconds       float64
}

func (a *amount) add(b amount) {
	a.reads += b.reads
	a.filled += b.filled
	a.seconds += b.seconds
}

// turn waits for a turn's end, or that of the refill, and returns what was done meanwhile.
func (b *refillBench) turn(ctx context.Context, r *readers) amount {
	missing, reads, began := b.missing(), r.count.Load(), time.Now()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for b.missing() > 0 && ctx.Err() == nil && time.Since(began) < b.spec.Lasts {
		<-look.C
	}
	return amount{
		reads: float64(r.count.Load() - reads), filled: float64(missing - b.missing()), seconds: time.Since(began).Seconds(),
	}
}

// readers are threads that read.
type readers struct {
	work  *errgroup.Group
	over  atomic.Bool
	count atomic.Uint64
}

// startReaders starts to read at random addresses of a part of the log.
func (b *refillBench) startReaders(ctx context.Context, from, to int64) *readers {
	r := &readers{}
	r.work, ctx = errgroup.WithContext(ctx)
	for i := range b.spec.Threads {
		r.work.Go(func() error { return b.read(ctx, r, rand.NewPCG(uint64(i), 1), from, to) })
	}
	return r
}

func (r *readers) stop() error {
	r.over.Store(true)
	return r.work.Wait()
}

// read is one thread.
func (b *refillBench) read(ctx context.Context, r *readers, rng *rand.PCG, from, to int64) (err error) {
	s := b.spec
	q, err := b.tiers.NewQueue(s.Depth)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	places := uint64(to-from) / uint64(s.Size)
	buffers, free := device.AlignedBuffer(s.Depth*s.Size, b.tiers.Alignment()), make([]uint64, s.Depth)
	for tag := range free {
		free[tag] = uint64(tag)
	}
	done := make([]device.Completion, s.Depth)
	for !r.over.Load() || len(free) < s.Depth {
		for ; len(free) > 0 && !r.over.Load(); free = free[:len(free)-1] {
			tag := free[len(free)-1]
			addr := from + int64(rng.Uint64()>>32*places>>32)*int64(s.Size)
			if err := q.Read(buffers[int(tag)*s.Size:][:s.Size], addr, tag); err != nil {
				return err
			}
		}
		if err := q.Submit(); err != nil {
			return err
		}
		n := q.Poll(done)
		if n == 0 {
			if err := q.Wait(ctx); err != nil {
				return err
			}
		}
		for _, c := range done[:n] {
			if c.Err != nil {
				return c.Err
			}
			free = append(free, c.Tag)
		}
		r.count.Add(uint64(n))
	}
	return nil
}
