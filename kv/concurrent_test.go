package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// TestNoTornReads repeatedly writes values of one repeated 8-byte pattern, in place and by
// copies, while other sessions read them.
func TestNoTornReads(t *testing.T) {
	for name, tc := range map[string]struct{ key, value, length int }{
		"8 bytes":       {8, 8, 8},
		"1 KB":          {8, 1024, 1024},
		"1 KB variable": {0, 0, 1024},
	} {
		t.Run(name, func(t *testing.T) {
			const keys, writers, readers = 4, 2, 2
			writes := testrun.Raced(60_000, 6000)
			st := open(t, Options{
				Device: device.NewMemory(), KeySize: tc.key, ValueSize: tc.value,
				Memory: 256 << 10, PageSize: 16 << 10, Records: 100,
			})
			pattern := func(v []byte, n uint64) []byte {
				for v = v[:0]; len(v) < tc.length; {
					v = binary.LittleEndian.AppendUint64(v, n)
				}
				return v
			}
			for n := range uint64(keys) {
				if err := st.Upsert(context.Background(), key8(n), pattern(nil, 0)); err != nil {
					t.Fatal(err)
				}
			}
			var stop atomic.Bool
			var wg sync.WaitGroup
			for w := range uint64(writers) {
				wg.Add(1)
				go func() {
					defer wg.Done()
					defer stop.Store(true)
					s := st.NewSession()
					defer closeAll(t, s)
					rng := rand.New(rand.NewPCG(w, 3))
					var v []byte
					for i := range uint64(writes) {
						v = pattern(v, i*writers+w)
						key := key8(rng.Uint64N(keys))
						var err error
						if i%4 == 0 {
							err = s.RMW(key, modifier(func(dst, old []byte, _ bool) []byte {
								if !bytes.Equal(old[:8], old[len(old)-8:]) {
									t.Error("a modifier was given a torn value")
								}
								return append(dst, v...)
							}))
						} else {
							err = s.Upsert(key, v)
						}
						if err == nil && i%5000 == 4999 {
							err = st.Commit(context.Background()) // makes the page read-only
						}
						if err != nil || stop.Load() {
							if err != nil {
								t.Error(err)
							}
							return
						}
					}
				}()
			}
			for r := range uint64(readers) {
				wg.Add(1)
				go func() {
					defer wg.Done()
					s := st.NewSession()
					defer closeAll(t, s)
					rng := rand.New(rand.NewPCG(r, 4))
					var buf, want []byte
					for !stop.Load() {
						v, err := s.Read(key8(rng.Uint64N(keys)), buf[:0])
						buf = v
						if err != nil {
							t.Error(err)
							return
						}
						want = pattern(want, binary.LittleEndian.Uint64(v))
						if !bytes.Equal(v, want) {
							t.Errorf("torn: %x", v)
							stop.Store(true)
						}
					}
				}()
			}
			wg.Wait()
			closeAll(t, st)
		})
	}
}

// TestCountersLoseNothing adds to the same counters in several sessions while pages become
// read-only, are evicted and are read again.
func TestCountersLoseNothing(t *testing.T) {
	for name, sizes := range map[string][2]int{"word": {8, 8}, "wide": {8, 24}, "variable": {}} {
		t.Run(name, func(t *testing.T) {
			const keys, sessions, rounds = 200, 4, 5000
			st := open(t, Options{
				Device: device.NewMemory(), KeySize: sizes[0], ValueSize: sizes[1],
				Memory: 16 << 10, ReadCache: 0.5, PageSize: 1 << 10, Records: keys, QueueDepth: 8,
			})
			increment := func(dst, old []byte, found bool) []byte {
				if !found {
					old = make([]byte, max(sizes[1], 8))
				}
				dst = append(dst, old...)
				at := dst[len(dst)-len(old):]
				binary.LittleEndian.PutUint64(at, binary.LittleEndian.Uint64(at)+1)
				if sizes[1] == 0 && len(old) < 64 {
					dst = append(dst, 0) // grows: sometimes no longer fits in place
				}
				return dst
			}
			var wg sync.WaitGroup
			for i := range uint64(sessions) {
				wg.Add(1)
				go func() {
					defer wg.Done()
					s := st.NewSession()
					defer closeAll(t, s)
					rng := rand.New(rand.NewPCG(i, 5))
					ops := make([]Op, 10)
					for range rounds / len(ops) {
						for i := range ops {
							ops[i] = Op{Kind: OpRMW, Key: key8(rng.Uint64N(keys)), Modify: modifier(increment)}
						}
						if err := s.Do(context.Background(), ops); err != nil {
							t.Error(err)
							return
						}
					}
				}()
			}
			wg.Wait()
			var sum uint64
			for n := range uint64(keys) {
				v, err := st.Read(context.Background(), key8(n), nil)
				if err != nil && !errors.Is(err, ErrNotFound) {
					t.Fatal(err)
				}
				if err == nil {
					sum += binary.LittleEndian.Uint64(v)
				}
			}
			if sum != sessions*rounds {
				t.Errorf("counters sum up to %d after %d increments", sum, sessions*rounds)
			}
			closeAll(t, st)
		})
	}
}

// TestDeviceThatFails makes the device fail permanently. Writers get its error, and records in
// memory can still be read.
func TestDeviceThatFails(t *testing.T) {
	broken := errors.New("the disk is gone")
	dev := &failingDevice{Device: device.NewMemory(), err: broken}
	st := open(t, small(dev, 8, 8))
	s := st.NewSession()
	var err error
	n := uint64(0)
	for ; err == nil; n++ {
		if n == 10_000 {
			t.Fatal("writes go on although the device fails")
		}
		err = s.Upsert(key8(n), key8(n))
	}
	if !errors.Is(err, broken) {
		t.Errorf("writer got %v", err)
	}
	readBack(s.Read(key8(n-2), nil)).Want(t, key8(n-2), "reading from memory")
	if err := st.Commit(context.Background()); !errors.Is(err, broken) {
		t.Errorf("Commit: %v", err)
	}
	closeAll(t, s)
	if err := st.Close(); !errors.Is(err, broken) {
		t.Errorf("Close: %v", err)
	}
}

// failingDevice completes writes with an error.
type failingDevice struct {
	device.Device
	err error
}

func (d *failingDevice) NewQueue(depth int) (device.Queue, error) {
	q, err := d.Device.NewQueue(depth)
	return &failingQueue{q, d.err, map[uint64]bool{}}, err
}

type failingQueue struct {
	device.Queue
	err    error
	writes map[uint64]bool
}

func (q *failingQueue) Write(src []byte, addr int64, tag uint64) error {
	q.writes[tag] = true
	return q.Queue.Write(src, addr, tag)
}

func (q *failingQueue) Poll(done []device.Completion) int {
	n := q.Queue.Poll(done)
	for i := range done[:n] {
		if q.writes[done[i].Tag] {
			done[i].Err = q.err
		}
	}
	return n
}

func TestOperationsDoNotAllocate(t *testing.T) {
	testrun.SkipRaced(t, "the race detector allocates")
	st := open(t, Options{
		Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 1 << 20, Records: 100_000,
	})
	s := st.NewSession()
	for n := range uint64(100_000) {
		if err := s.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	cold, hot, buf := key8(1), key8(99_999), make([]byte, 0, 8)
	modify := add(1)
	for name, op := range map[string]func() error{
		"read hot":  func() error { _, err := s.Read(hot, buf); return err },
		"read cold": func() error { _, err := s.Read(cold, buf); return err },
		"upsert":    func() error { return s.Upsert(hot, hot) },
		"rmw":       func() error { return s.RMW(hot, modify) },
	} {
		if n := testrun.AllocsPerRun(100, func() {
			if err := op(); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
	closeAll(t, s, st)
}
