package redytier_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/redytier"
)

// value returns a key's value after its version-th update. Its words contain key and version,
// so torn, stale and foreign bytes are detected.
func value(buf []byte, key, version uint64) []byte {
	for i := 0; i+8 <= len(buf); i += 8 {
		binary.LittleEndian.PutUint64(buf[i:], key<<32|version)
	}
	return buf
}

// versionOf checks a value and returns its version.
func versionOf(buf []byte, key uint64) (uint64, error) {
	first := binary.LittleEndian.Uint64(buf)
	for i := 0; i+8 <= len(buf); i += 8 {
		if w := binary.LittleEndian.Uint64(buf[i:]); w != first || w>>32 != key {
			return 0, fmt.Errorf("key %d: word %d is %#x, the first %#x", key, i/8, w, first)
		}
	}
	return first & (1<<32 - 1), nil
}

// The log of a store wraps several times around a cache, in batches through message rings.
// Writers and readers run concurrently: each read returns a whole value, not older than one
// seen before. The loss of a server changes nothing.
func TestStoreOnCache(t *testing.T) {
	const keys, size, writers, readers, updates = 2000, 104, 2, 2, 8000 // the log grows to 1.8 MB
	for _, name := range transporttest.Names(t) {
		for _, killed := range []bool{false, true} {
			redytier.ForVMs(t, fmt.Sprintf("%s,killed=%v", name, killed), name, func(t *testing.T, allocator redytier.VMs) {
				quiet := slog.New(slog.DiscardHandler)
				mgr, err := manager.Embed(t.Context(), manager.EmbedOptions{Allocator: allocator, VMMemory: 256 << 10, Logger: quiet})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := mgr.Close(); err != nil {
						t.Error(err)
					}
				}()
				redy, err := redytier.Open(t.Context(), mgr, redytier.Config{
					Capacity: 512 << 10, RegionSize: 64 << 10, Transport: name, Logger: quiet,
					Configuration: redytier.Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: 16, QueueDepth: 4},
				})
				if err != nil {
					t.Fatal(err)
				}
				victim := vmOf(t, mgr)
				store, err := kv.Open(kv.Options{
					Device: device.NewTieredWith(device.TieredOptions{Logger: quiet}, redy, device.NewMemory()),
					Memory: 128 << 10, PageSize: 8 << 10, KeySize: 8, ValueSize: size, Records: keys, Logger: quiet,
				})
				if err != nil {
					t.Fatal(err)
				}
				var newest [keys]atomic.Uint64 // acknowledged versions
				var flushed atomic.Int64       // end of what was written to the tiers when the VM was killed
				var writing, reading sync.WaitGroup
				var stop atomic.Bool
				for id := range writers {
					writing.Go(func() {
						s := store.NewSession()
						defer closeOf(t, s)
						r := rand.New(rand.NewPCG(uint64(id), 1))
						var key [8]byte
						buf := make([]byte, size)
						alive := killed && id == 0
						for i := 0; i < updates || alive; i++ {
							if alive && i%100 == 0 && redy.Cache().Metrics().Reads > 1000 {
								alive = !allocator.Kill(victim)
								flushed.Store(store.Metrics().Log.Flushed)
							}
							k := r.Uint64N(keys/writers)*writers + uint64(id)
							version := newest[k].Load() + 1
							binary.LittleEndian.PutUint64(key[:], k)
							if err := s.Upsert(key[:], value(buf, k, version)); err != nil {
								t.Errorf("key %d: %v", k, err)
								return
							}
							newest[k].Store(version)
						}
					})
				}
				for id := range readers {
					reading.Go(func() {
						s := store.NewSession()
						defer closeOf(t, s)
						r := rand.New(rand.NewPCG(uint64(id), 2))
						var keyOf [64][8]byte
						var atLeast [64]uint64
						var ops [64]kv.Op
						for n := 0; !stop.Load() || n < 50; n++ {
							for i := range ops {
								k := r.Uint64N(keys)
								binary.LittleEndian.PutUint64(keyOf[i][:], k)
								atLeast[i] = newest[k].Load()
								ops[i] = kv.Op{Kind: kv.OpRead, Key: keyOf[i][:], Value: ops[i].Value[:0]}
							}
							if err := s.Do(context.Background(), ops[:]); err != nil {
								t.Error(err)
								return
							}
							for i := range ops {
								k := binary.LittleEndian.Uint64(keyOf[i][:])
								if errors.Is(ops[i].Err, kv.ErrNotFound) && atLeast[i] == 0 {
									continue
								}
								version, err := uint64(0), ops[i].Err
								if err == nil {
									version, err = versionOf(ops[i].Value, k)
								}
								if err != nil || version < atLeast[i] {
									t.Errorf("key %d: version %d, %v; %d was acknowledged before", k, version, err, atLeast[i])
									return
								}
							}
						}
					})
				}
				writing.Wait()
				stop.Store(true)
				reading.Wait()
				// The VM is replaced. What it had is refilled from the next tier, as far as the log
				// has not lapped it before.
				for start := time.Now(); ; time.Sleep(time.Millisecond) {
					m := store.Metrics().Device.Tiers[0]
					refilled := m.Refilled > hlog.FirstAddress                                          // nothing is written below FirstAddress
					lapped := m.Begin >= flushed.Load()                                                 // everything that was lost
					if redy.Cache().Err() == nil && m.Missing == 0 && (refilled || lapped || !killed) { // the last refill is counted a moment later
						if !m.Healthy || refilled && !killed {
							t.Errorf("metrics of the first tier %+v", m)
						}
						break
					}
					if time.Since(start) > testrun.Patience(testrun.Bound) {
						t.Fatalf("%v; metrics of the first tier %+v", redy.Cache().Err(), m)
					}
				}
				if m := redy.Cache().Metrics(); m.Batches == 0 || m.Reads == 0 || m.LostRegions > 0 && !killed { // none, if they were replaced
					t.Errorf("metrics of the cache %+v", m)
				}
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// vmOf is the id of the manager's first VM.
func vmOf(t *testing.T, mgr access.Client) string {
	t.Helper()
	r, err := mgr.Describe(t.Context(), connect.NewRequest(&managerv1.DescribeRequest{}))
	if err != nil || len(r.Msg.GetVms()) == 0 {
		t.Fatalf("VMs: %v, %v", r, err)
	}
	return r.Msg.GetVms()[0].GetId()
}

func closeOf(t *testing.T, s *kv.Session) {
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
