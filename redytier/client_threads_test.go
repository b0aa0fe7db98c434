package redytier

import (
	"encoding/binary"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// counting is an application thread that increments its words and checks that reads return the
// counts in program order.
type counting struct {
	t       *testing.T
	client  *Client
	at      int64 // of its first word
	counts  []uint64
	pending sync.WaitGroup
}

// round adds one to a word and reads it, without waiting for either.
func (w *counting) round(i int) {
	addr := w.at + int64(i)*8
	w.counts[i]++
	want := w.counts[i]
	buf := binary.LittleEndian.AppendUint64(nil, want)
	w.pending.Add(2)
	if err := w.client.Write(w.t.Context(), buf, addr, func(_ int, err error) { w.ended(err) }); err != nil {
		w.ended(err)
	}
	got := make([]byte, 8)
	err := w.client.Read(w.t.Context(), got, addr, func(_ int, err error) {
		if now := binary.LittleEndian.Uint64(got); err == nil && now != want {
			w.t.Errorf("at %d: %d, want %d", addr, now, want)
		}
		w.ended(err)
	})
	if err != nil {
		w.ended(err)
	}
}

func (w *counting) ended(err error) {
	if err != nil {
		w.t.Error(err)
	}
	w.pending.Done()
}

// Client threads are replaced while handles are used: no call is lost, each callback runs
// once, and each handle's calls keep their order.
func TestClientsAcrossReconfigure(t *testing.T) {
	for _, tuning := range []Tuning{{}, {Locks: true}, {Pinning: PinAlways}} {
		if tuning.Pinning == PinAlways && runtime.GOOS != "linux" {
			continue
		}
		c := newCluster(t, "mem", 2, 1<<20)
		cache := c.create(t, Config{Capacity: 100_000, RegionSize: 16 << 10, Configuration: configurations[0], Tuning: tuning})
		var stop atomic.Bool
		var threads sync.WaitGroup
		const each = 50
		for id := range 5 {
			w := &counting{t: t, client: cache.NewClient(), at: int64(id) * each * 8, counts: make([]uint64, each)}
			threads.Go(func() {
				for i := 0; !stop.Load(); i++ {
					w.round(i % each)
				}
				w.pending.Wait()
			})
		}
		for i := range 12 {
			configuration := Configuration{ClientThreads: 1 + i%4, ServerThreads: 1, BatchSize: 1 + 3*(i%3), QueueDepth: 1 + i%5}
			if err := cache.Reconfigure(t.Context(), configuration); err != nil {
				t.Fatal(err)
			}
			if n := len(cache.clients.threadSet.Load().threads); n != configuration.ClientThreads {
				t.Errorf("%d client threads, want %d", n, configuration.ClientThreads)
			}
		}
		stop.Store(true)
		threads.Wait()
		if n, want := cache.Metrics().Sessions, len(cache.clients.threadSet.Load().threads); n != want {
			t.Errorf("%d sessions are left, want %d", n, want)
		}
	}
}

// Handles are distributed evenly over the client threads, and keep theirs.
func TestHandlesAreSpread(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	cache := c.create(t, Config{Capacity: 100_000, Configuration: Configuration{ClientThreads: 3, BatchSize: 1, QueueDepth: 2}})
	used := map[*clientThread]int{}
	done := make(chan error)
	for range 6 {
		k := cache.NewClient()
		var at []*clientThread
		for range 3 {
			thread, err := k.try(call{buf: make([]byte, 8), cb: func(_ int, err error) { done <- err }})
			if err = errors.Join(err, testrun.Receive(t, "the call ends", done)); err != nil {
				t.Fatal(err)
			}
			at = append(at, thread)
		}
		if len(slices.Compact(at)) != 1 {
			t.Error("a handle changed its thread")
		}
		used[at[0]]++
	}
	for thread, n := range used {
		if n != 2 {
			t.Errorf("thread %p has %d handles of 6", thread, n)
		}
	}
}

// With one-sided access switched off, batches of one go through the rings.
func TestTwoSided(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	one := Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: 1, QueueDepth: 4}
	for _, twoSided := range []bool{false, true} {
		cache := c.create(t, Config{Capacity: 100_000, RegionSize: 16 << 10, Configuration: one, Tuning: Tuning{TwoSided: twoSided}})
		w := &counting{t: t, client: cache.NewClient(), counts: make([]uint64, 100)}
		for i := range 100 {
			w.round(i)
		}
		w.pending.Wait()
		if n := cache.Metrics().Batches; twoSided && n != 200 || !twoSided && n != 0 {
			t.Errorf("two-sided %v: %d batches for 200 requests", twoSided, n)
		}
		if err := cache.Reconfigure(t.Context(), Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 4}); (err != nil) != twoSided {
			t.Errorf("two-sided %v without server threads: %v", twoSided, err)
		}
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// As many client threads as the paper's client has cores, and as many sessions of the
// application, continue across a Reconfigure: servers have room for all rings.
func TestManyClientThreads(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	many := Configuration{ClientThreads: 30, ServerThreads: 1, BatchSize: 4, QueueDepth: 2}
	cache := c.create(t, Config{Capacity: 100_000, Configuration: many})
	for range many.ClientThreads {
		newPump(t, cache, 4).connect()
	}
	many.QueueDepth = 4
	if err := cache.Reconfigure(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	w := &counting{t: t, client: cache.NewClient(), counts: make([]uint64, 100)}
	for i := range 100 {
		w.round(i)
	}
	w.pending.Wait()
}

// A session that handles an earlier change while connections for the next change are added
// keeps these connections: the next table needs them.
func TestMailBeforeTheTable(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	cache := c.create(t, Config{Capacity: 100_000})
	w := &counting{t: t, client: cache.NewClient(), counts: make([]uint64, 1)}
	endpoint := newEndpoint(cache.table.Load().grants()[0], cache.Configuration())
	cache.changed()
	cache.mu.Lock()
	cache.endpoints = append(cache.endpoints, endpoint)
	sessions := slices.Collect(maps.Keys(cache.sessions))
	cache.mu.Unlock()
	for _, s := range sessions {
		if err := cache.prepare(t.Context(), s, endpoint, nil, controlTimeout); err != nil {
			t.Fatal(err)
		}
	}
	w.round(0)
	w.pending.Wait()
	cache.update(func(t *table) {
		t.endpoints = append(t.endpoints, endpoint)
		for i := range t.regions.len() {
			t.regions.edit(i).endpoint = endpoint
		}
	})
	w.round(0)
	w.pending.Wait()
}
