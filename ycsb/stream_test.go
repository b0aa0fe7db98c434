package ycsb

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
)

// streamStore returns a store with the records [0, records) of variable length, most of them
// not in memory.
func streamStore(t *testing.T, records int64, valueSize int) *kv.Store {
	t.Helper()
	store, err := kv.Open(kv.Options{Device: device.NewMemory(), Memory: 64 << 10, Records: 2 * records})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := Load(t.Context(), store, Shape{Records: records, ValueSize: valueSize, Depth: 1, Memory: 64 << 10}, 1, nil); err != nil {
		t.Fatal(err)
	}
	return store
}

// TestStreams runs all kinds of operations in several threads, and checks that each operation
// is counted once and that each record has its value.
func TestStreams(t *testing.T) {
	const records, threads, each = 3000, 3, 4000
	for _, size := range []int{8, 100} {
		for _, depth := range []int{1, 40} {
			store := streamStore(t, records, size)
			var inserts atomic.Int64
			inserts.Store(records)
			var mu sync.Mutex
			var total Counts
			var wg sync.WaitGroup
			for id := range threads {
				wg.Go(func() {
					s, err := NewStream(store, StreamSpec{
						First: 10, Records: records - 10, ValueSize: size, Depth: depth, Distribution: Zipfian,
						Mix: Mix{Read: 4, Update: 2, Insert: 1, ReadModifyWrite: 3}, Inserts: &inserts, Seed: int64(id),
					})
					if err != nil {
						t.Error(err)
						return
					}
					for range each {
						if err := s.Next(context.Background()); err != nil {
							t.Error(err)
						}
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					total.Add(s.Take())
				})
			}
			wg.Wait()
			ops, measured := uint64(0), int64(0)
			for kind, c := range total.Kinds {
				// Shares in tenths; each tenth is about 1200 operations.
				if want := threads * each / 10 * []uint64{4, 2, 1, 3}[kind]; c.Ops < want*8/10 || c.Ops > want*12/10 || c.Errors > 0 {
					t.Errorf("%v: %+v, want about %d", Kind(kind), c, want)
				}
				ops += c.Ops
				measured += c.Latencies.TotalCount()
			}
			if ops != threads*each || measured != ops2samples(threads, each) || total.FirstError != nil {
				t.Errorf("%d operations, %d measured, %v", ops, measured, total.FirstError)
			}
			added := int64(total.Kinds[Insert].Ops)
			if inserts.Load() != records+added {
				t.Errorf("%d inserts, and the next record is %d", added, inserts.Load())
			}
			key := make([]byte, KeySize)
			for n := range uint64(records + added) {
				record.PutKey(key, n)
				value, err := store.Read(context.Background(), key, nil)
				if err == nil {
					err = record.CheckValue(value, n, size)
				}
				if err != nil {
					t.Fatalf("record %d: %v", n, err)
				}
			}
		}
	}
}

// ops2samples returns the number of measured operations.
func ops2samples(threads, each int) int64 { return int64(threads * (each / sampleEvery)) }

// TestSamplesAllPlaces checks that reads at every place of a burst, and so of a lane, are measured.
func TestSamplesAllPlaces(t *testing.T) {
	store := streamStore(t, 100, 8)
	numbers, err := Uniform.Generator(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(8, burst, numbers)
	r.session = store.NewSession()
	var measured [burst]int
	for range 2 * sampleEvery {
		order := slices.Clone(r.free)
		slices.Reverse(order)
		if n, err := r.submit(burst); n != burst || err != nil {
			t.Fatal(n, err)
		}
		for place, i := range order {
			if r.began[i] != 0 {
				measured[place]++
			}
		}
		for len(r.free) < burst {
			if r.poll() == 0 {
				if err := r.session.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := r.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	if slices.Min(measured[:]) < 1 || r.errors > 0 {
		t.Errorf("measured at each place: %v; %d errors", measured, r.errors)
	}
}

// TestStreamFindsWrongRecords checks that each kind of operation counts wrong records.
func TestStreamFindsWrongRecords(t *testing.T) {
	for kind, want := range map[Kind]string{Read: "byte 0 of the value", ReadModifyWrite: "wrong value"} {
		for _, missing := range []bool{false, true} {
			const records = 50
			store := streamStore(t, records, 16)
			key := make([]byte, KeySize)
			for n := range uint64(records) {
				record.PutKey(key, n)
				var err error
				if missing {
					err = store.Delete(context.Background(), key)
				} else {
					err = store.Upsert(context.Background(), key, make([]byte, 16))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			mix := Mix{}
			mix[kind] = 1
			s, err := NewStream(store, StreamSpec{Records: records, ValueSize: 16, Depth: 8, Distribution: Uniform, Mix: mix, Inserts: new(atomic.Int64)})
			if err != nil {
				t.Fatal(err)
			}
			const ops = 200
			for range ops {
				if err := s.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			c := s.Take()
			if c.Kinds[kind].Errors != ops {
				t.Errorf("%v, missing %v: %+v", kind, missing, c.Kinds[kind])
			}
			switch {
			case kind == Read && missing:
				if !errors.Is(c.FirstError, kv.ErrNotFound) {
					t.Errorf("%v", c.FirstError)
				}
			case c.FirstError == nil || !strings.Contains(c.FirstError.Error(), want):
				t.Errorf("%v, missing %v: %v, want %q", kind, missing, c.FirstError, want)
			}
		}
	}
}

func TestStreamSpec(t *testing.T) {
	store := streamStore(t, 10, 8)
	for what, spoil := range map[string]func(*StreamSpec){
		"no records":   func(s *StreamSpec) { s.Records = 0 },
		"no value":     func(s *StreamSpec) { s.ValueSize = 0 },
		"no depth":     func(s *StreamSpec) { s.Depth = 0 },
		"too deep":     func(s *StreamSpec) { s.Depth = MaxDepth + 1 },
		"no mix":       func(s *StreamSpec) { s.Mix = Mix{} },
		"a bad mix":    func(s *StreamSpec) { s.Mix = Mix{Read: -1, Update: 2} },
		"distribution": func(s *StreamSpec) { s.Distribution = "latest" },
		"a bad start":  func(s *StreamSpec) { s.First = -1 },
	} {
		spec := StreamSpec{Records: 10, ValueSize: 8, Depth: 4, Distribution: Uniform, Mix: Mix{Read: 1}, Inserts: new(atomic.Int64)}
		spoil(&spec)
		if _, err := NewStream(store, spec); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestStreamAllocatesNothing(t *testing.T) {
	testrun.SkipRaced(t, "the race detector allocates")
	store := streamStore(t, 100, 100)
	s, err := NewStream(store, StreamSpec{
		Records: 100, ValueSize: 100, Depth: 16, Distribution: Zipfian, Mix: Mix{Read: 1, Update: 1, ReadModifyWrite: 1}, Inserts: new(atomic.Int64),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	some := func() {
		for range 1000 {
			if err := s.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	some()
	// A page of the log from time to time, and the device's state for it.
	if allocs := testrun.AllocsPerRun(20, some); allocs > 20 {
		t.Errorf("%v allocations in 1000 operations", allocs)
	}
}
