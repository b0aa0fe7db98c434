package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
)

// BenchmarkMemory measures plain calls on a store that fits into memory.
func BenchmarkMemory(b *testing.B) {
	for _, records := range []uint64{1 << 10, 1 << 22} {
		st := open(b, Options{
			Device: device.NewNull(), KeySize: 8, ValueSize: 8,
			Memory: max(int64(records)*32, 1<<20), Records: int64(records),
		})
		s := st.NewSession()
		load(b, s, records)
		key, buf := make([]byte, 8), make([]byte, 0, 8)
		modify := add(1)
		for name, op := range map[string]func() error{
			"read":   func() error { _, err := s.Read(key, buf); return err },
			"upsert": func() error { return s.Upsert(key, key) },
			"rmw":    func() error { return s.RMW(key, modify) },
		} {
			b.Run(fmt.Sprintf("op=%s/records=%d", name, records), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 2))
				b.ReportAllocs()
				for b.Loop() {
					binary.LittleEndian.PutUint64(key, rng.Uint64N(records))
					if err := op(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		closeAll(b, s, st)
	}
}

// BenchmarkColdRead measures reads from a device without latency. The log is six times as
// large as its memory.
func BenchmarkColdRead(b *testing.B) {
	for _, valueSize := range []int{8, 1024} {
		records := uint64(1 << 22 / (valueSize / 8))
		st := open(b, Options{
			Device: device.NewMemory(), KeySize: 8, ValueSize: valueSize,
			Memory: int64(records) * int64(16+valueSize) / 6, Records: int64(records),
		})
		s := st.NewSession()
		load(b, s, records)
		b.Run(fmt.Sprintf("mode=plain/value=%d", valueSize), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			key, buf := make([]byte, 8), make([]byte, 0, valueSize)
			b.ReportAllocs()
			for b.Loop() {
				binary.LittleEndian.PutUint64(key, rng.Uint64N(records))
				if _, err := s.Read(key, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("mode=stream/value=%d", valueSize), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			ops := make([]Op, 256)
			free := make([]*Op, 0, len(ops))
			for i := range ops {
				ops[i] = Op{Key: make([]byte, 8), Value: make([]byte, 0, valueSize)}
				free = append(free, &ops[i])
			}
			done := make([]*Op, len(ops))
			b.ReportAllocs()
			for b.Loop() {
				for len(free) == 0 {
					n := s.Poll(done)
					free = append(free, done[:n]...)
					if n == 0 {
						if err := s.Wait(context.Background()); err != nil {
							b.Fatal(err)
						}
					}
				}
				op := free[len(free)-1]
				binary.LittleEndian.PutUint64(op.Key, rng.Uint64N(records))
				free = free[:len(free)-1]
				if err := s.Submit(op); err != nil {
					b.Fatal(err)
				}
			}
			for s.Pending() > 0 {
				if err := s.Wait(context.Background()); err != nil {
					b.Fatal(err)
				}
				s.Poll(done)
			}
		})
		closeAll(b, s, st)
	}
}

// BenchmarkReadCache measures batches of reads of records on a device without latency, without
// a read cache and with one that has room for all of them.
func BenchmarkReadCache(b *testing.B) {
	for _, valueSize := range []int{8, 100, 1024} {
		for _, share := range []float64{0, 0.5} {
			records := uint64(1 << 27 / (16 + valueSize))
			st := open(b, Options{
				Device: device.NewMemory(), KeySize: 8, ValueSize: valueSize,
				Memory: 1 << 25, ReadCache: share, Records: int64(records),
			})
			s := st.NewSession()
			load(b, s, records)
			hot := records / 24 // 5 MiB of records
			ops := make([]Op, 256)
			for i := range ops {
				ops[i] = Op{Key: make([]byte, 8), Value: make([]byte, 0, valueSize)}
			}
			for n := uint64(0); n < 2*hot; {
				for i := range ops {
					binary.LittleEndian.PutUint64(ops[i].Key, n%hot)
					n++
				}
				if err := s.Do(context.Background(), ops); err != nil {
					b.Fatal(err)
				}
			}
			b.Run(fmt.Sprintf("value=%d/share=%g", valueSize, share), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 2))
				b.ReportAllocs()
				for n := len(ops); b.Loop(); n++ {
					if n == len(ops) {
						if err := s.Do(context.Background(), ops); err != nil {
							b.Fatal(err)
						}
						n = 0
					}
					binary.LittleEndian.PutUint64(ops[n].Key, rng.Uint64N(hot))
				}
			})
			closeAll(b, s, st)
		}
	}
}

func load(b *testing.B, s *Session, records uint64) {
	value := make([]byte, s.store.opts.ValueSize)
	for n := range records {
		binary.LittleEndian.PutUint64(value, n)
		if err := s.Upsert(value[:8:8], value); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBarrier measures the duration of a barrier during operations of sessions. All of
// them wait for its end.
func BenchmarkBarrier(b *testing.B) {
	st := open(b, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 64 << 20})
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		s := st.NewSession()
		wg.Go(func() {
			defer closeAll(b, s)
			for n := uint64(0); !stop.Load(); n++ {
				if err := s.Upsert(key8(n%1e6), key8(n)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for b.Loop() {
		_ = st.exclusive(context.Background(), func() {})
	}
	stop.Store(true)
	wg.Wait()
	closeAll(b, st)
}

// BenchmarkOpen measures recovery from the log alone and from the log and a copy of the index.
func BenchmarkOpen(b *testing.B) {
	const records = 1 << 20
	for _, withIndex := range []bool{false, true} {
		b.Run(fmt.Sprintf("index=%v", withIndex), func(b *testing.B) {
			disk := device.NewMemory()
			opts := Options{Device: disk, KeySize: 8, ValueSize: 8, Memory: 1 << 20}
			st := open(b, opts)
			s := st.NewSession()
			for n := range uint64(records) {
				if err := s.Upsert(key8(n), key8(n)); err != nil {
					b.Fatal(err)
				}
			}
			closeAll(b, s)
			if _, err := st.Checkpoint(context.Background(), CheckpointOptions{LogOnly: !withIndex}); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				closeAll(b, st)
				opts.Device = disk.Reopen()
				st = open(b, opts)
			}
			closeAll(b, st)
		})
	}
}

// BenchmarkCommitBarrier commits a store with many sessions that have counted keys of 16 classes. Its
// figure us/barrier is how long operations wait for each commit.
func BenchmarkCommitBarrier(b *testing.B) {
	for _, sessions := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			st := open(b, Options{
				Device: device.NewMemory(), Memory: 64 << 20, PageSize: 1 << 20, Logger: silent,
				CountKeys: true, KeyClass: func(key []byte) uint8 { return key[0] % 16 },
			})
			all := make([]interface{ Close() error }, 0, sessions+1)
			for i := range uint64(sessions) {
				s := st.NewSession()
				all = append(all, s)
				for class := range uint64(16) {
					if err := s.Upsert(key8(i<<8|class), nil); err != nil {
						b.Fatal(err)
					}
				}
			}
			before := st.Metrics().Barriers
			for b.Loop() {
				if err := errors.Join(st.Upsert(b.Context(), key8(1), nil), st.Commit(b.Context())); err != nil {
					b.Fatal(err)
				}
			}
			after := st.Metrics().Barriers
			b.ReportMetric(float64((after.Sum-before.Sum).Microseconds())/float64(after.Count-before.Count), "us/barrier")
			closeAll(b, append(all, st)...)
		})
	}
}
