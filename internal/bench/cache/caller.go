package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/redytier"
)

// caller is an application thread that uses the cache's client threads.
type caller struct {
	loop
	client *redytier.Client
	back   []redytier.Callback // by tag

	// over is a ring of completed tags, from the callbacks, which one client thread runs,
	// to the application thread. A tag is in it at most once, so it never overflows. The
	// callbacks own tail, the application owns head.
	over       []uint64
	head, tail atomic.Uint64
	failed     atomic.Pointer[error] // the first
	parked     atomic.Bool
	wake       chan struct{} // holds one token
}

func newCaller(l loop, c *redytier.Cache) *caller {
	k := &caller{
		loop: l, client: c.NewClient(), back: make([]redytier.Callback, l.depth),
		over: make([]uint64, l.depth), wake: make(chan struct{}, 1),
	}
	for tag := range k.back {
		k.back[tag] = func(_ int, err error) { k.ended(uint64(tag), err) }
	}
	return k
}

// ended is called by every callback.
func (k *caller) ended(tag uint64, err error) {
	if err != nil {
		first := err // a copy, so that err stays off the heap
		k.failed.CompareAndSwap(nil, &first)
	}
	tail := k.tail.Load()
	k.over[tail%uint64(len(k.over))] = tag
	k.tail.Store(tail + 1)
	if k.parked.Load() {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

func (k *caller) close() error { return nil }

func (k *caller) slice(ctx context.Context, op Op, size int, lasts time.Duration) (bench.Sample, error) {
	return k.run(ctx, k, op, size, lasts)
}

// start issues requests for free tags while there is room.
func (k *caller) start(size int) error {
	for len(k.free) > 0 {
		tag := k.free[len(k.free)-1]
		addr, write := k.draw(size)
		k.meter.Issued(tag)
		var err error
		if buf := k.buffer(tag, size); write {
			err = k.client.TryWrite(buf, addr, k.back[tag])
		} else {
			err = k.client.TryRead(buf, addr, k.back[tag])
		}
		if errors.Is(err, redytier.ErrBusy) {
			return nil
		}
		if err != nil {
			return err
		}
		k.free = k.free[:len(k.free)-1]
	}
	return nil
}

// finish waits for callbacks.
func (k *caller) finish(ctx context.Context) error {
	head := k.head.Load()
	if len(k.free) == k.depth {
		runtime.Gosched() // the requests of other threads take all the room
		return ctx.Err()
	}
	for spins := 1; k.tail.Load() == head; spins++ {
		if !k.poll {
			if err := k.park(ctx, head); err != nil {
				return err
			}
			continue
		}
		if spins%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		runtime.Gosched()
	}
	for tail := k.tail.Load(); head < tail; head++ {
		tag := k.over[head%uint64(len(k.over))]
		k.meter.Completed(tag)
		k.free = append(k.free, tag)
	}
	k.head.Store(head)
	if err := k.failed.Load(); err != nil {
		return fmt.Errorf("request: %w", *err)
	}
	return nil
}

// park sleeps until a tag is beyond head.
func (k *caller) park(ctx context.Context, head uint64) error {
	k.parked.Store(true)
	defer k.parked.Store(false)
	if k.tail.Load() != head {
		return nil
	}
	select {
	case <-k.wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
