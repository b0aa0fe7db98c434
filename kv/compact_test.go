package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

var compactMethods = []CompactMethod{CompactByLookup, CompactByScan, CompactAuto}

// mustCompact compacts, and checks that the log is shorter afterwards.
func mustCompact(t *testing.T, st *Store, opts CompactOptions) CompactionInfo {
	t.Helper()
	info, err := st.Compact(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if st.log.Begin() != info.Until || info.Until < info.From {
		t.Fatalf("compacted %+v, the log begins at %d", info, st.log.Begin())
	}
	return info
}

// check compares the whole store with a map, by reads and by a scan.
func check(t *testing.T, st *Store, keys uint64, want map[string]string) {
	t.Helper()
	for n := range keys {
		got, err := st.Read(context.Background(), key8(n), nil)
		w, found := want[string(key8(n))]
		if found != (err == nil) || err != nil && !errors.Is(err, ErrNotFound) || string(got) != w {
			t.Fatalf("key %d: %s, %v; want %s, found %v", n, brief(got), err, brief([]byte(w)), found)
		}
	}
	left, begin, twice := maps.Clone(want), st.log.Begin(), false
	for r, err := range st.Scan() {
		if err != nil {
			t.Fatal(err)
		}
		if w, ok := want[string(r.Key)]; !ok || w != string(r.Value) {
			t.Fatalf("scan finds %x = %s at %d; want %s, present %v", r.Key, brief(r.Value), r.Address, brief([]byte(w)), ok)
		}
		_, first := left[string(r.Key)]
		twice = twice || !first
		delete(left, string(r.Key))
	}
	if twice && st.log.Begin() == begin {
		t.Error("the scan finds a key twice, and nothing was moved")
	}
	if len(left) > 0 {
		t.Fatalf("the scan misses %d of %d keys: %x", len(left), len(want), left)
	}
}

// TestCompact writes, overwrites and deletes much more than fits into memory, compacts by each
// method and in parts, and reads everything, before and after a restart.
func TestCompact(t *testing.T) {
	for _, method := range compactMethods {
		for name, sizes := range map[string][2]int{"word": {8, 8}, "variable": {}} {
			for _, collide := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%s/collide=%v", method, name, collide), func(t *testing.T) {
					dev := device.NewMemory()
					opts := small(dev, sizes[0], sizes[1])
					keys := uint64(500)
					if collide {
						keys = 60
						opts.hash = func([]byte) uint64 { return 42 }
					}
					st := open(t, opts)
					rng := rand.New(rand.NewPCG(uint64(method), keys))
					want := map[string]string{}
					write := func(n int) {
						for range n {
							key := key8(rng.Uint64N(keys))
							if rng.IntN(4) == 0 {
								if err := st.Delete(context.Background(), key); err != nil {
									t.Fatal(err)
								}
								delete(want, string(key))
								continue
							}
							value := key8(rng.Uint64())
							if sizes[0] == 0 {
								value = bytes.Repeat(value[:1], rng.IntN(100))
							}
							if err := st.Upsert(context.Background(), key, value); err != nil {
								t.Fatal(err)
							}
							want[string(key)] = string(value)
						}
					}
					write(2000)
					check(t, st, keys, want)
					for round := range 4 {
						tail := st.log.Tail()
						info := mustCompact(t, st, CompactOptions{
							Method: method, Bytes: (tail - st.log.Begin()) / 2, Memory: int64(round) * 1000,
						})
						if info.Until == info.From || info.Copied > info.Records || info.Copied == 0 && !collide {
							t.Errorf("round %d: %+v", round, info)
						}
						check(t, st, keys, want)
						write(200)
					}
					closeAll(t, st)
					opts.Device = dev.Reopen()
					st = open(t, opts)
					check(t, st, keys, want)
					mustCompact(t, st, CompactOptions{Method: method, Bytes: math.MaxInt64}) // all
					check(t, st, keys, want)
					if m := st.Metrics(); m.Compaction.Runs != 1 || m.Compaction.ReclaimedBytes == 0 {
						t.Errorf("metrics %+v", m)
					}
					closeAll(t, st)
				})
			}
		}
	}
}

// TestCompactDropsTheDead compacts a log without live records: all are replaced, deleted or
// expired.
func TestCompactDropsTheDead(t *testing.T) {
	for _, method := range compactMethods {
		t.Run(method.String(), func(t *testing.T) {
			var now atomic.Int64
			now.Store(MinExpires + 1000)
			opts := small(device.NewMemory(), 8, 8)
			opts.now = now.Load
			st := open(t, opts)
			s := st.NewSession()
			const keys = 300
			for n := range uint64(keys) {
				op := Op{Kind: OpUpsert, Key: key8(n), Value: key8(n)}
				switch n % 3 {
				case 0:
					op.Expires = MinExpires + 2000 // it has expired by then
				case 1:
					op.Expires = MinExpires + 3000
				}
				if err := s.Run(&op); err != nil {
					t.Fatal(err)
				}
			}
			for n := uint64(2); n < keys; n += 3 {
				if err := s.Delete(key8(n)); err != nil {
					t.Fatal(err)
				}
			}
			now.Store(MinExpires + 2500)
			if err := st.Commit(context.Background()); err != nil { // everything is read-only afterwards
				t.Fatal(err)
			}
			if info := mustCompact(t, st, CompactOptions{Method: method}); info.Copied < keys/3-keys/10 || info.Copied > keys/3 {
				t.Errorf("%+v: want about a third copied", info)
			}
			for n := range uint64(keys) {
				op := Op{Kind: OpRead, Key: key8(n)}
				if err := s.Run(&op); (err == nil) != (n%3 == 1) || err == nil && op.Expires != MinExpires+3000 {
					t.Errorf("key %d: %v, expires %d", n, err, op.Expires)
				}
			}
			now.Store(MinExpires + 3500)
			for range 2 { // the second time, the copies of the first
				if err := st.Commit(context.Background()); err != nil {
					t.Fatal(err)
				}
				mustCompact(t, st, CompactOptions{Method: method})
			}
			if tail, begin := st.log.Tail(), st.log.Begin(); tail-begin > int64(st.log.PageSize()) {
				t.Errorf("a log from %d to %d is left", begin, tail)
			}
			closeAll(t, s, st)
		})
	}
}

func TestCompactRefusesNonsense(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	for _, opts := range []CompactOptions{
		{Until: -1}, {Bytes: -1}, {Until: 1, Bytes: 1}, {Method: 9}, {Share: 1.5}, {Memory: -1},
	} {
		if info, err := st.Compact(context.Background(), opts); err == nil {
			t.Errorf("%+v: %+v", opts, info)
		}
	}
	closeAll(t, st)
	if _, err := st.Compact(context.Background(), CompactOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("on a closed store: %v", err)
	}
}

// TestCompactStopsWithItsContext cancels very slow compactions.
func TestCompactStopsWithItsContext(t *testing.T) {
	for _, method := range compactMethods {
		st := open(t, small(device.NewMemory(), 8, 8))
		want := map[string]string{}
		for n := range uint64(2000) {
			if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
				t.Fatal(err)
			}
			want[string(key8(n))] = string(key8(n))
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := st.Compact(ctx, CompactOptions{Method: method, Share: 1e-6}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: %v", method, err)
		}
		check(t, st, 2000, want)
		closeAll(t, st)
	}
}

// A compaction that waits for space for its copies ends with its context.
func TestCompactWithoutSpaceStops(t *testing.T) {
	dev := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	st := open(t, small(dev, 8, 8))
	size := int64(st.log.Layout().Size(8, 8, false))
	for n := uint64(0); st.log.Tail()+size <= 4<<10; n++ { // all that memory holds
		if err := st.Upsert(t.Context(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	testrun.Until(t, "the first page is read-only", func() bool { return st.log.SafeReadOnly() >= 1<<10 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := st.Compact(ctx, CompactOptions{Bytes: 1 << 10, Method: CompactByLookup})
		ended <- err
	}()
	if err := testrun.Receive(t, "the compaction ends", ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	dev.Set(device.FaultyOptions{})
	dev.Release()
	closeAll(t, st)
}

// openWritten opens a small store and writes 2000 records.
func openWritten(t *testing.T, dev device.Device) *Store {
	t.Helper()
	opts := small(dev, 8, 8)
	opts.Logger = silent
	st := open(t, opts)
	for n := range uint64(2000) {
		if err := st.Upsert(t.Context(), key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

// The next commit frees the space of a compaction whose commit failed.
func TestCommitFreesCompactedSpace(t *testing.T) {
	dev := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	st := openWritten(t, dev)
	mustCommit(t, st)
	before := dev.Begin()
	dev.Set(device.FaultyOptions{SyncError: 1})
	if _, err := st.Compact(t.Context(), CompactOptions{Bytes: st.log.Tail() / 2}); !errors.Is(err, device.ErrFault) {
		t.Errorf("compaction whose commit fails: %v", err)
	}
	dev.Set(device.FaultyOptions{})
	if at := dev.Begin(); at != before || st.log.Begin() <= before {
		t.Errorf("the device begins at %d, it was %d; the log begins at %d", at, before, st.log.Begin())
	}
	mustCommit(t, st)
	if at, want := dev.Begin(), st.log.Block(st.log.Begin()); at != want {
		t.Errorf("after the next commit the device begins at %d, want %d", at, want)
	}
	closeAll(t, st)
}

// What a device could not remove is removed after a later commit.
func TestSpaceIsFreedAgain(t *testing.T) {
	dev := &unwilling{Device: device.NewMemory()}
	st := openWritten(t, dev)
	dev.refuses.Store(true)
	mustCompact(t, st, CompactOptions{Bytes: st.log.Tail() / 2})
	refused := dev.asked.Load()
	dev.refuses.Store(false)
	if refused == 0 {
		t.Fatal("nothing was to be removed")
	}
	testrun.Until(t, "it is removed", func() bool {
		mustCommit(t, st)
		return dev.asked.Load() > refused
	})
	asked := dev.asked.Load()
	if mustCommit(t, st); dev.asked.Load() != asked {
		t.Error("removed again")
	}
	closeAll(t, st)
}

// A truncation whose commit fails while space is being freed is not forgotten.
func TestTruncationDuringACollection(t *testing.T) {
	dev := &unwilling{Device: device.NewMemory()}
	st := openWritten(t, dev)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	dev.meanwhile = func() {
		dev.meanwhile = nil
		if err := st.truncate(ended, st.log.SafeReadOnly()); !errors.Is(err, context.Canceled) {
			t.Errorf("a truncation whose context has ended: %v", err)
		}
	}
	if _, err := st.Compact(t.Context(), CompactOptions{Bytes: st.log.Tail() / 2}); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, st)
	if at, want := dev.Begin(), st.log.Block(st.log.Begin()); at != want || dev.meanwhile != nil {
		t.Errorf("after the next commit the device begins at %d, want %d", at, want)
	}
	closeAll(t, st)
}

// What a slow tier has not written yet is freed by a later commit.
func TestTruncationAboveASlowTier(t *testing.T) {
	last := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	opts := small(device.NewTieredWith(device.TieredOptions{CommitPoint: 1, Logger: silent}, device.NewMemory(), last), 8, 8)
	told, times := int64(0), 0
	opts.Events.Truncated = func(i TruncateInfo) { told, times = i.Begin, times+1 }
	st := open(t, opts)
	if err := st.Upsert(t.Context(), key8(1), key8(1)); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, st)
	begin := st.log.SafeReadOnly()
	if err := st.truncate(t.Context(), begin); err != nil || told >= begin || told != st.dev.Begin() {
		t.Errorf("%v: truncated to %d, the device begins at %d", err, told, st.dev.Begin())
	}
	for range 3 {
		st.checkpointer.unfreed.Store(1)
		mustCommit(t, st)
	}
	if times != 1 {
		t.Errorf("it is told %d times", times)
	}
	last.Set(device.FaultyOptions{})
	last.Release()
	testrun.Until(t, "it is freed", func() bool {
		mustCommit(t, st)
		return st.dev.Begin() == begin && told == begin
	})
	closeAll(t, st)
}

// unwilling is a device whose Truncate fails after it has moved Begin.
type unwilling struct {
	device.Device
	refuses   atomic.Bool
	asked     atomic.Int64
	meanwhile func() // runs within Truncate, unless it is nil
}

func (d *unwilling) Truncate(begin int64) error {
	d.asked.Add(1)
	if d.meanwhile != nil {
		d.meanwhile()
	}
	err := d.Device.Truncate(begin)
	if d.refuses.Load() {
		err = errors.Join(err, device.ErrFault)
	}
	return err
}

// TestCountersDuringCompaction increments counters during repeated compactions: no update is
// lost, and no deleted counter comes back.
func TestCountersDuringCompaction(t *testing.T) {
	for _, method := range compactMethods {
		for name, hash := range map[string]func([]byte) uint64{"spread": nil, "collide": func([]byte) uint64 { return 42 }} {
			t.Run(method.String()+"/"+name, func(t *testing.T) {
				const sessions, keys = 3, 40
				opts := small(device.NewMemory(), 8, 8)
				opts.QueueDepth, opts.hash = 4, hash
				st := open(t, opts)
				rounds := testrun.Raced(1500, 200)
				const stay = 100 // live keys, which compaction copies
				for n := range uint64(stay) {
					if err := st.Upsert(context.Background(), key8(5000+n), key8(n)); err != nil {
						t.Fatal(err)
					}
				}
				var sums [sessions][keys]uint64
				var stop atomic.Bool
				var wg, compacting sync.WaitGroup
				tookPart := func() bool { m := st.Metrics(); return m.Compaction.CopiedRecords > 0 && m.Log.Begin != 64 }
				for id := range sessions {
					wg.Go(func() {
						rng := rand.New(rand.NewPCG(uint64(id), 1))
						s := st.NewSession()
						defer closeAll(t, s)
						ops := make([]Op, 12)
						// On a busy machine a compaction may find nothing to do for a while.
						for round := 0; round < rounds || round < 1000*rounds && !tookPart(); round++ {
							for i := range ops {
								n := rng.Uint64N(keys)
								sums[id][n]++
								ops[i] = Op{Kind: OpRMW, Key: key8(n), Modify: add(1)}
							}
							if err := s.Do(context.Background(), ops); err != nil {
								t.Error(err)
								return
							}
							gone := key8(keys + uint64(id))
							if err := s.Upsert(gone, gone); err != nil {
								t.Error(err)
							}
							if err := s.Delete(gone); err != nil {
								t.Error(err)
							}
							if round%16 == 0 { // fill the log
								for n := range uint64(50) {
									if err := s.Upsert(key8(1000+n), key8(n)); err != nil {
										t.Error(err)
									}
								}
							}
							if v, err := s.Read(gone, nil); !errors.Is(err, ErrNotFound) {
								t.Errorf("a deleted key is back: %x, %v", v, err)
								return
							}
						}
					})
				}
				runs := 0
				compacting.Go(func() {
					for ; !stop.Load(); runs++ {
						if _, err := st.Compact(context.Background(), CompactOptions{Method: method}); err != nil {
							t.Error(err)
							return
						}
					}
				})
				wg.Wait()
				stop.Store(true)
				compacting.Wait()
				for n := range uint64(keys) {
					want := uint64(0)
					for id := range sums {
						want += sums[id][n]
					}
					readBack(st.Read(context.Background(), key8(n), nil)).Want(t, key8(want), "counter %d", n)
				}
				for n := range uint64(stay) {
					readBack(st.Read(context.Background(), key8(5000+n), nil)).Want(t, key8(n), "key %d", 5000+n)
				}
				m := st.Metrics()
				if !tookPart() {
					t.Errorf("%d compactions, %d records copied, begin %d", runs, m.Compaction.CopiedRecords, m.Log.Begin)
				}
				t.Logf("%d compactions, %d of %d records copied", runs, m.Compaction.CopiedRecords, m.Compaction.ReadRecords)
				closeAll(t, st)
			})
		}
	}
}
