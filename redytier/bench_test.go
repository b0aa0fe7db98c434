package redytier

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/testrun"
)

// benchCapacity exceeds the processor's caches by far.
const benchCapacity = 256 << 20

// readRounds does rounds of depth random reads of size bytes: enqueue all, one
// doorbell, poll all.
func readRounds(t testing.TB, q device.Queue, depth, size, rounds int) {
	bufs := make([]byte, depth*size)
	done := make([]device.Completion, depth)
	ctx := context.Background()
	r := rand.New(rand.NewPCG(1, 1))
	for range rounds {
		for i := range depth {
			addr := r.Int64N(benchCapacity/int64(size)) * int64(size)
			if err := q.Read(bufs[i*size:(i+1)*size], addr, uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Submit(); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < depth; {
			n := q.Poll(done)
			for _, c := range done[:n] {
				if c.Err != nil {
					t.Fatal(c.Err)
				}
			}
			if got += n; n == 0 {
				if err := q.Wait(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func benchCache(t testing.TB, transport string, batch, depth int) *Cache {
	c := newCluster(t, transport, 1, benchCapacity)
	configuration := Configuration{ClientThreads: 1, BatchSize: batch, QueueDepth: depth}
	if batch > 1 {
		configuration.ServerThreads = 1
	}
	cache := c.create(t, Config{Capacity: benchCapacity, Configuration: configuration})
	// Memory that was never written is one page of zeros, which is always cached.
	s := newSession(t, cache, 1)
	page := make([]byte, 1<<20)
	for addr := int64(0); addr < benchCapacity; addr += int64(len(page)) {
		finish(t, s, func() error { return s.Write(page, addr, 0) }, func(c device.Completion) {
			if c.Err != nil {
				t.Fatal(c.Err)
			}
		})
	}
	return cache
}

func BenchmarkSession(b *testing.B) {
	for _, name := range transport.Usable() {
		for _, batch := range []int{1, 16, 64} {
			cache := benchCache(b, name, batch, 4)
			for _, size := range []int{8, 64, 1024} {
				for _, depth := range []int{1, 64, 256} {
					b.Run(fmt.Sprintf("%s/b=%d/size=%d/depth=%d", name, batch, size, depth), func(b *testing.B) {
						s := newSession(b, cache, depth)
						b.ReportAllocs()
						readRounds(b, s, depth, size, 4) // warm
						b.ResetTimer()
						readRounds(b, s, depth, size, b.N/depth+1)
					})
				}
			}
		}
	}
}

func BenchmarkCallbacks(b *testing.B) {
	cache := benchCache(b, "mem", 1, 4)
	buf := make([]byte, 8)
	tokens := make(chan struct{}, 256)
	cb := func(int, error) { <-tokens }
	b.ReportAllocs()
	for i := range b.N {
		tokens <- struct{}{}
		if err := cache.Read(b.Context(), buf, int64(i)*8%benchCapacity, cb); err != nil {
			b.Fatal(err)
		}
	}
	for range cap(tokens) {
		tokens <- struct{}{}
	}
}

// No operation allocates, on either path, nor does a Device.
func TestNoAllocations(t *testing.T) {
	testrun.SkipRaced(t, "the race detector allocates")
	for _, batch := range []int{1, 16} {
		cache := benchCache(t, "mem", batch, 4)
		s := newSession(t, cache, 64)
		d := NewDevice(cache)
		if err := d.Start(0); err != nil {
			t.Fatal(err)
		}
		q := openQueue(t, d, 64)
		d.end.Store(benchCapacity) // as if it had been written
		for name, q := range map[string]device.Queue{"session": s, "device": q} {
			readRounds(t, q, 64, 24, 10)
			// The rounds' own buffers take three allocations.
			least := math.Inf(1) // other goroutines of the process allocate as well
			for tries := 0; tries < 3 && least > 10; tries++ {
				least = min(least, testing.AllocsPerRun(5, func() { readRounds(t, q, 64, 24, 100) }))
			}
			if least > 10 {
				t.Errorf("b=%d, %s: %v allocations in 6400 reads", batch, name, least)
			}
		}
		closeQueue(t, q)
	}
}

// BenchmarkReadsBesideHeldWrites measures single reads while a number of writes to another
// region wait for its gate.
func BenchmarkReadsBesideHeldWrites(b *testing.B) {
	for _, held := range []int{0, 1, 1000, 10_000} {
		b.Run(fmt.Sprint(held), func(b *testing.B) {
			c := newCluster(b, "mem", 1, 1<<21)
			cache := c.create(b, Config{Capacity: 1 << 21, RegionSize: 1 << 20, Configuration: oneSided})
			setGate := func(g gate) {
				cache.update(func(t *table) { t.regions.edit(0).gate = g })
			}
			setGate(holdWrites)
			s := newSession(b, cache, held+1)
			defer setGate(0)
			for i := range held {
				if err := s.Write(make([]byte, 8), int64(i)*8, 0); err != nil {
					b.Fatal(err)
				}
			}
			buf := make([]byte, 8)
			for b.Loop() {
				finish(b, s, func() error { return s.Read(buf, 1<<20, 1) }, func(c device.Completion) {
					if c.Err != nil || c.Tag != 1 {
						b.Fatalf("%+v", c)
					}
				})
			}
		})
	}
}
