package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// evicting returns options of a small cache.
func evicting(e Eviction) Options {
	if e.MaxLog == 0 {
		e.MaxLog = 256 << 10
	}
	return Options{Device: device.NewMemory(), Memory: 128 << 10, PageSize: 4 << 10, Records: 1 << 12, CountKeys: true, Eviction: e}
}

// liveKeys returns the number of keys of a scan.
func liveKeys(t *testing.T, st *Store) (n int64) {
	t.Helper()
	for _, err := range st.Scan() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestEvictionKeepsTheNewest: without Recent the oldest keys are dropped, each once.
func TestEvictionKeepsTheNewest(t *testing.T) {
	var mu sync.Mutex
	gone := make(map[string]int)
	opts := evicting(Eviction{Evicted: func(key []byte) {
		mu.Lock()
		defer mu.Unlock()
		gone[string(key)]++
	}})
	st := open(t, opts)
	defer closeAll(t, st)
	ctx := context.Background()
	const n = 20_000
	value := []byte(strings.Repeat("v", 50))
	for i := range n {
		if err := st.Upsert(ctx, fmt.Appendf(nil, "key%06d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	awaitLog(t, st, opts.Eviction.MaxLog)
	mu.Lock()
	defer mu.Unlock()
	keys := int64(0)
	for i := range n {
		key := fmt.Appendf(nil, "key%06d", i)
		_, err := st.Read(ctx, key, nil)
		switch {
		case err == nil && gone[string(key)] == 0:
			keys++
		case errors.Is(err, ErrNotFound) && gone[string(key)] == 1 && keys == 0:
		default:
			t.Fatalf("%s: %v, evicted %d times, %d older keys are there", key, err, gone[string(key)], keys)
		}
	}
	all, _, _ := st.KeyCount()
	if m := st.Metrics().Eviction; all != keys || liveKeys(t, st) != keys || m.Keys != uint64(n-keys) || keys == 0 {
		t.Errorf("%d keys, counted %d, %+v", keys, all, m)
	}
}

// awaitLog waits until the log is not longer than allowed.
func awaitLog(t *testing.T, st *Store, most int64) {
	t.Helper()
	testrun.Until(t, fmt.Sprintf("the log has at most %d bytes", most), func() bool { return st.log.Tail()-st.log.Begin() <= most })
	st.autoCompactor.pause()() // a run has ended
}

// TestEvictionSparesRecent: keys that were used get a second chance.
func TestEvictionSparesRecent(t *testing.T) {
	opts := evicting(Eviction{Recent: func(key []byte) bool { return strings.HasPrefix(string(key), "hot") }})
	st := open(t, opts)
	defer closeAll(t, st)
	ctx := context.Background()
	value := []byte(strings.Repeat("v", 50))
	for i := range 20_000 {
		key := fmt.Appendf(nil, "key%06d", i)
		if i%200 == 0 {
			key = fmt.Appendf(nil, "hot%06d", i)
		}
		if err := st.Upsert(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	awaitLog(t, st, opts.Eviction.MaxLog)
	for i := 0; i < 20_000; i += 200 {
		if _, err := st.Read(ctx, fmt.Appendf(nil, "hot%06d", i), nil); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	// All are hot: the log gets shorter nevertheless.
	st.opts.Logger.Debug("all hot")
	for i := range 20_000 {
		if err := st.Upsert(ctx, fmt.Appendf(nil, "hot%06d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	awaitLog(t, st, opts.Eviction.MaxLog)
	if all, _, _ := st.KeyCount(); all != liveKeys(t, st) {
		t.Errorf("counted %d keys, there are %d", all, liveKeys(t, st))
	}
}

// Eviction that fails is tried again each second.
func TestEvictionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := device.NewFaulty(device.NewMemory(), device.FaultyOptions{ReadError: 1})
		opts := evicting(Eviction{})
		opts.Device, opts.Logger = dev, silent
		st := open(t, opts)
		defer closeAll(t, st)
		for n := uint64(0); st.log.Tail() < 2*opts.Eviction.MaxLog; n++ {
			if err := st.Upsert(t.Context(), key8(n), key8(n)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := st.Metrics().BackgroundErrors; n < 9 || n > 11 {
			t.Errorf("%d failures in 10 s", n)
		}
		dev.Set(device.FaultyOptions{})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if length := st.log.Tail() - st.log.Begin(); length > opts.Eviction.MaxLog {
			t.Errorf("the log has %d bytes after the device has recovered", length)
		}
	})
}

// TestEvictionCounts: the count stays exact under concurrent operations of every kind, with long chains, and
// after the store was opened again.
func TestEvictionCounts(t *testing.T) {
	for name, hash := range map[string]func([]byte) uint64{
		"hashed": nil,
		"chains": func(key []byte) uint64 { return uint64(key[len(key)-1] % 16) },
	} {
		t.Run(name, func(t *testing.T) {
			var evicted atomic.Int64
			opts := evicting(Eviction{
				Recent:  func(key []byte) bool { return key[0]%3 == 0 },
				Evicted: func([]byte) { evicted.Add(1) },
			})
			opts.hash = hash
			st := open(t, opts)
			defer closeAll(t, st)
			steps := testrun.Raced(8_000, 3_000)
			if hash != nil {
				steps = 1_500
			}
			var wg sync.WaitGroup
			for w := range 4 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(w), 7))
					s := st.NewSession()
					defer func() {
						if err := s.Close(); err != nil {
							t.Error(err)
						}
					}()
					for range steps {
						key := fmt.Appendf(nil, "%c%d", 'a'+rng.IntN(3), rng.IntN(3000))
						value := make([]byte, 20+rng.IntN(200))
						op := Op{Kind: OpUpsert, Key: key, Value: value}
						switch rng.IntN(6) {
						case 0:
							op = Op{Kind: OpDelete, Key: key}
						case 1:
							op = Op{Kind: OpRMW, Key: key, Modify: func(u *Update) Verdict {
								u.New = append(u.New, value...)
								return Put
							}}
						case 2:
							op = Op{Kind: OpRead, Key: key}
						case 3:
							op.Expires = ExpiresIn(time.Duration(1+rng.IntN(100)) * time.Hour)
						}
						if err := s.Run(&op); err != nil && !errors.Is(err, ErrNotFound) {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			awaitLog(t, st, opts.Eviction.MaxLog)
			all, expiring, _ := st.KeyCount()
			if n := liveKeys(t, st); all != n || evicted.Load() == 0 {
				t.Errorf("counted %d keys, there are %d; %d evicted", all, n, evicted.Load())
			}
			timed := int64(0)
			for r, err := range st.Scan() {
				if err != nil {
					t.Fatal(err)
				}
				if r.Expires != 0 {
					timed++
				}
			}
			if timed != expiring {
				t.Errorf("counted %d keys that expire, there are %d", expiring, timed)
			}
		})
	}
}

func TestEvictionOptions(t *testing.T) {
	for want, e := range map[string]Eviction{
		"want 0 or more":      {MaxLog: -1},
		"is less than Memory": {MaxLog: 1},
		"but no MaxLog":       {Recent: func([]byte) bool { return true }},
	} {
		if _, err := Open(Options{Device: device.NewMemory(), Eviction: e}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
