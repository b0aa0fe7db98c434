package redytier

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// pattern fills dst with bytes that depend on their addresses.
func pattern(dst []byte, addr int64) {
	for i := range dst {
		dst[i] = byte((addr+int64(i))/251) ^ byte(addr+int64(i))
	}
}

// newPopulated returns an empty cache of two regions, each longer than all buffers of a
// regionWriter, on two VMs.
func newPopulated(t *testing.T) *Cache {
	const size = 4 << 20
	c := newCluster(t, "mem", 2, size)
	cache := c.create(t, Config{Capacity: 2 * size, RegionSize: size, Configuration: oneSided})
	if r := cache.Regions(); r[0].VM == r[1].VM || size <= writeDepth*writeChunk {
		t.Fatalf("%+v", r)
	}
	return cache
}

// opener returns a source.
func opener(parallel int, read func(ctx context.Context, dst []byte, addr int64) error, closed *atomic.Int32) func() (source, error) {
	return func() (source, error) {
		return source{read: read, parallel: parallel, close: func() error { closed.Add(1); return nil }}, nil
	}
}

// Regions on two VMs are filled at the same time, in chunks.
func TestPopulateInParallel(t *testing.T) {
	cache := newPopulated(t)
	var closed atomic.Int32
	var both sync.WaitGroup // the first chunk of each region waits for the other's
	both.Add(2)
	err := cache.fillFrom(t.Context(), opener(2, func(_ context.Context, dst []byte, addr int64) error {
		if addr%cache.RegionSize() == 0 {
			both.Done()
			both.Wait()
		}
		pattern(dst, addr)
		return nil
	}, &closed))
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, cache.Capacity())
	pattern(want, 0)
	same(t, cache, want)
	if n := closed.Load(); n != 1 {
		t.Errorf("the source was closed %d times", n)
	}
}

// The error of a source, and the end of the caller's context, end a filling whose buffers are
// all in use. It can be repeated.
func TestPopulateFails(t *testing.T) {
	cache := newPopulated(t)
	var closed atomic.Int32
	bad := errors.New("bad block")
	for _, at := range []int64{0, writeChunk, (writeDepth + 3) * writeChunk, cache.RegionSize() + writeChunk} {
		err := cache.fillFrom(t.Context(), opener(1, func(_ context.Context, dst []byte, addr int64) error {
			if addr == at {
				return bad
			}
			return nil
		}, &closed))
		if !errors.Is(err, bad) {
			t.Errorf("error at %d: %v", at, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		err = cache.fillFrom(ctx, opener(2, func(ctx context.Context, _ []byte, addr int64) error {
			if addr == at {
				cancel(bad)
			}
			return nil
		}, &closed))
		if !errors.Is(err, bad) && !errors.Is(err, context.Canceled) {
			t.Errorf("ended at %d: %v", at, err)
		}
	}
	err := cache.fillFrom(t.Context(), opener(1, func(_ context.Context, dst []byte, addr int64) error {
		pattern(dst, addr)
		return nil
	}, &closed))
	want := make([]byte, cache.Capacity())
	pattern(want, 0)
	same(t, cache, want)
	if n := closed.Load(); err != nil || n != 9 {
		t.Errorf("%v, and the source was closed %d times", err, n)
	}
}
