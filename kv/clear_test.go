package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// mustClear clears, and checks that a scan finds nothing.
func mustClear(t testing.TB, st *Store) {
	t.Helper()
	if err := st.Clear(context.Background()); err != nil {
		t.Fatal(err)
	}
	for r, err := range st.Scan() {
		t.Fatalf("after Clear a scan finds %x, %v", r.Key, err)
	}
}

// mustCommit commits, and waits until the space is free that this frees.
func mustCommit(t testing.TB, st *Store) {
	t.Helper()
	if err := st.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	st.background.Wait()
}

// fillUp writes keys 0 to n-1.
func fillUp(t testing.TB, st *Store, n uint64) {
	t.Helper()
	s := st.NewSession()
	defer closeAll(t, s)
	for key := range n {
		if err := s.Upsert(key8(key), key8(key)); err != nil {
			t.Fatal(err)
		}
	}
}

// found counts the existing keys from 0 to n-1.
func found(t testing.TB, st *Store, n uint64) (all int) {
	t.Helper()
	s := st.NewSession()
	defer closeAll(t, s)
	for key := range n {
		switch _, err := s.Read(key8(key), nil); {
		case err == nil:
			all++
		case !errors.Is(err, ErrNotFound):
			t.Fatal(err)
		}
	}
	return all
}

// TestClearMeetsOperationsUnderWay clears the store while operations are pending. Those that
// change a record find none.
func TestClearMeetsOperationsUnderWay(t *testing.T) {
	for i := range 4 {
		kept := i%2 != 0   // the index is kept, as during growth
		before := i/2 != 0 // the reads have completed but were not polled
		t.Run(fmt.Sprintf("kept=%v,read=%v", kept, before), func(t *testing.T) {
			const keys = 500
			opts := small(device.NewMemory(), 8, 8)
			opts.QueueDepth = 64
			st := open(t, opts)
			fillUp(t, st, keys)
			s := st.NewSession()
			var ops []Op
			for n := range uint64(20) {
				ops = append(ops,
					Op{Kind: OpRead, Key: key8(3 * n)},
					Op{Kind: OpRMW, Key: key8(3*n + 1), Modify: add(1000)},
					Op{Kind: OpInsert, Key: key8(3*n + 2), Value: key8(7)})
			}
			for i := range ops {
				if err := s.Submit(&ops[i]); err != nil {
					t.Fatal(err)
				}
			}
			s.flush()
			underWay := map[OpKind]int{}
			takesEffect := map[string]bool{}
			for i := range s.pending {
				if op := s.pending[i].op; op != nil {
					underWay[op.Kind]++
					takesEffect[string(op.Key)] = op.Kind != OpRead
				}
			}
			if underWay[OpRead] == 0 || underWay[OpRMW] == 0 || underWay[OpInsert] == 0 {
				t.Fatalf("under way are %v", underWay)
			}
			if before {
				s.submitReads()
				if s.takenReads, s.polledReads = 0, s.queue.Poll(s.completions[:]); s.polledReads == 0 {
					t.Fatal("nothing has arrived")
				}
			}
			if kept {
				st.resizing.Lock()
			}
			index := st.index.Load()
			mustClear(t, st)
			if kept != (st.index.Load() == index) {
				t.Errorf("the index was kept: %v", !kept)
			}
			if kept {
				st.resizing.Unlock()
			}
			if err := errors.Join(st.Commit(context.Background()), s.completeAll(context.Background())); err != nil { // the old log is truncated
				t.Fatal(err)
			}
			for i, op := range ops {
				switch {
				case op.Kind == OpRead && errors.Is(op.Err, ErrNotFound):
				case op.Kind == OpInsert && errors.Is(op.Err, ErrExists) && !takesEffect[string(op.Key)]: // before
				case op.Err != nil:
					t.Errorf("operation %d: %v", i, op.Err)
				}
			}
			for n := range uint64(keys) {
				v, err := s.Read(key8(n), nil)
				want := uint64(7)
				if n%3 == 1 {
					want = 1000
				}
				there := takesEffect[string(key8(n))]
				if there && (err != nil || loadWord(v) != want) || !there && !errors.Is(err, ErrNotFound) {
					t.Errorf("key %d: %x, %v; was being changed: %v", n, v, err, there)
				}
			}
			closeAll(t, s, st)
		})
	}
}

// TestClearIsDurableWithACommit crashes before and after the commit of a Clear.
func TestClearIsDurableWithACommit(t *testing.T) {
	const keys = 500
	disk := device.NewMemory()
	opts := small(disk, 8, 8)
	opts.CountKeys = true
	st := open(t, opts)
	reopen := func(want int) {
		t.Helper()
		crash(t, st)
		disk = disk.Reopen()
		opts.Device = disk
		st = open(t, opts)
		if n := found(t, st, keys); n != want {
			t.Fatalf("%d keys, want %d", n, want)
		}
		if n, _, _ := st.KeyCount(); n != int64(want) {
			t.Fatalf("counted %d keys, want %d", n, want)
		}
	}
	ctx := context.Background()
	fillUp(t, st, keys)
	mustCommit(t, st)
	mustClear(t, st)
	reopen(keys) // the Clear is lost
	if _, err := st.Checkpoint(ctx, CheckpointOptions{Kind: Index}); err != nil {
		t.Fatal(err)
	}
	mustClear(t, st)
	fillUp(t, st, 10)
	mustCommit(t, st)
	begin := st.log.Begin()
	if disk.Begin() != begin {
		t.Errorf("the device begins at %d, the log at %d", disk.Begin(), begin)
	}
	if names := objectNames(t, disk); len(names) != 0 {
		t.Errorf("the device keeps %v", names)
	}
	mustClear(t, st)
	reopen(10)
	mustClear(t, st)
	mustClear(t, st)
	mustCommit(t, st)
	reopen(0)
	fillUp(t, st, keys)
	mustCommit(t, st)
	reopen(keys)
	closeAll(t, st)
	if err := st.Clear(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("Clear of a closed store: %v", err)
	}
}

// TestClearKeepsCheckpoints recovers a checkpoint from before a Clear, of an index that had
// grown. Removing the checkpoint frees its space.
func TestClearKeepsCheckpoints(t *testing.T) {
	const keys = 500
	for kind := range manifest.Kinds {
		if kind == Index {
			continue
		}
		t.Run(kind.String(), func(t *testing.T) {
			disk := device.NewMemory()
			opts := small(disk, 8, 8)
			st := open(t, opts)
			fillUp(t, st, keys)
			if err := st.GrowIndex(context.Background()); err != nil {
				t.Fatal(err)
			}
			fillUp(t, st, keys)
			old := mustCheckpoint(t, st, CheckpointOptions{Name: "old", Kind: kind})
			mustClear(t, st)
			fillUp(t, st, 10)
			mustCommit(t, st)
			if disk.Begin() > old.Begin {
				t.Errorf("the device begins at %d, the checkpoint at %d", disk.Begin(), old.Begin)
			}
			reopen := func(name string, want int) {
				t.Helper()
				crash(t, st)
				disk = disk.Reopen()
				opts.Device, opts.Recover = disk, name
				st = open(t, opts)
				if n := found(t, st, keys); n != want {
					t.Fatalf("%d keys in %q, want %d", n, name, want)
				}
			}
			reopen("", 10)
			reopen("old", keys)
			mustClear(t, st)
			if err := st.RemoveCheckpoint(context.Background(), "old"); err != nil {
				t.Fatal(err)
			}
			mustCommit(t, st)
			if disk.Begin() != st.log.Begin() {
				t.Errorf("the device begins at %d, the log at %d", disk.Begin(), st.log.Begin())
			}
			reopen("", 0)
			closeAll(t, st)
		})
	}
}

// A Clear on a full device does not become durable while a kept checkpoint needs the log: the device does
// not have the log up to the Clear.
func TestClearOnFullDeviceWithACheckpoint(t *testing.T) {
	const keys = 500
	disk := device.NewMemory()
	full := device.NewFaulty(disk, device.FaultyOptions{})
	opts := small(full, 8, 8)
	opts.Logger = silent
	st := open(t, opts)
	fillUp(t, st, keys)
	old := mustCheckpoint(t, st, CheckpointOptions{Name: "old"})
	full.Set(device.FaultyOptions{Full: true})
	fillUp(t, st, 10)
	for range 2 {
		if err := cmp.Or(st.Clear(t.Context()), st.Commit(t.Context())); !errors.Is(err, device.ErrNoSpace) {
			t.Errorf("a commit: %v", err)
		}
	}
	if m := st.recorded(); m.Commit.Tail > old.Tail {
		t.Errorf("a commit up to %d, the device has the log up to %d", m.Commit.Tail, old.Tail)
	}
	crash(t, st)
	opts.Device = disk.Reopen()
	st = open(t, opts)
	if n := found(t, st, keys); n != keys {
		t.Errorf("%d keys, want %d", n, keys)
	}
	closeAll(t, st)
}

// TestCommitsDoNotWaitForSpace: a commit of a Clear returns, and later ones are made, while the device frees
// the space. If it fails, a later commit tries again.
func TestCommitsDoNotWaitForSpace(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	dev := &unwilling{Device: device.NewMemory(), meanwhile: sync.OnceFunc(func() {
		close(begun)
		<-goOn
	})}
	opts := small(dev, 8, 8)
	opts.Logger = silent
	st := open(t, opts)
	fillUp(t, st, 500)
	mustClear(t, st)
	commit := func(what string) {
		t.Helper()
		ended := make(chan error, 1)
		go func() { ended <- st.Commit(context.Background()) }()
		if err := testrun.Receive(t, what, ended); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	dev.refuses.Store(true)
	commit("the commit of the Clear")
	testrun.Receive(t, "the freeing of its space", begun)
	fillUp(t, st, 10)
	next := st.NextCommit()
	commit("a commit meanwhile")
	if last := st.LastCommit(); last < next {
		t.Errorf("the last commit is %d, want %d", last, next)
	}
	close(goOn)
	st.background.Wait()
	if asked := dev.asked.Load(); asked != 1 || st.Metrics().BackgroundErrors != 1 {
		t.Errorf("the device was asked %d times, %d failures", asked, st.Metrics().BackgroundErrors)
	}
	dev.refuses.Store(false)
	st.checkpointer.unfreed.Store(1) // a second later
	mustCommit(t, st)
	if asked := dev.asked.Load(); asked != 2 || st.checkpointer.unfreed.Load() != 0 {
		t.Errorf("after the next commit the device was asked %d times, space is left at %d", asked, st.checkpointer.unfreed.Load())
	}
	closeAll(t, st)
}

// A Clear and its commit while the space of the Clear before is freed: that of the second is freed too, without
// another commit.
func TestSpaceOfAClearMeanwhile(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	dev := &unwilling{Device: device.NewMemory(), meanwhile: sync.OnceFunc(func() {
		close(begun)
		<-goOn
	})}
	st := open(t, small(dev, 8, 8))
	for range 2 {
		fillUp(t, st, 500)
		mustClear(t, st)
		if err := st.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		testrun.Receive(t, "the freeing of the first one's space", begun)
	}
	close(goOn)
	st.background.Wait()
	m := st.recorded()
	if begin := m.Begin(); dev.Begin() < st.log.Block(begin) || st.checkpointer.cleared.Load() != nil {
		t.Errorf("the device begins at %d, the log at %d", dev.Begin(), begin)
	}
	closeAll(t, st)
}

// TestClearBesideCheckpoints clears during checkpoints of each kind. The recovered state has
// all keys or none.
func TestClearBesideCheckpoints(t *testing.T) {
	const keys = 300
	rounds := testrun.Raced(30, 5)
	for kind := range manifest.Kinds {
		t.Run(kind.String(), func(t *testing.T) {
			disk := device.NewMemory()
			opts := small(disk, 8, 8)
			for round := range rounds {
				opts.Device, opts.Recover = disk, ""
				st := open(t, opts)
				mustClear(t, st)
				fillUp(t, st, keys)
				name := fmt.Sprintf("round-%d", round)
				if kind == Index {
					name = ""
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					_, err := st.Checkpoint(context.Background(), CheckpointOptions{Name: name, Kind: kind, LogOnly: round%2 == 0})
					if err != nil {
						t.Error(err)
					}
				})
				for range round * 20 {
					runtime.Gosched()
				}
				if err := st.Clear(context.Background()); err != nil {
					t.Fatal(err)
				}
				wg.Wait()
				if round%3 == 0 {
					if err := st.Commit(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				crash(t, st)
				disk = disk.Reopen()
				opts.Device, opts.Recover = disk, name
				st = open(t, opts)
				if n := found(t, st, keys); n != 0 && n != keys {
					t.Fatalf("round %d: %d of %d keys", round, n, keys)
				}
				closeAll(t, st)
				disk = disk.Reopen()
			}
		})
	}
}

// TestClearTakesBatchesWhole clears while sessions write pairs of keys, in transactions and in
// whole batches. Afterwards both keys of a pair exist, or none.
func TestClearTakesBatchesWhole(t *testing.T) {
	const pairs, clears = 4, 200
	opts := small(device.NewMemory(), 8, 8)
	opts.CountKeys = true
	st := open(t, opts)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for w := range uint64(2 * pairs) {
		wg.Go(func() {
			s := st.NewSession()
			defer closeAll(t, s)
			pair := [][]byte{key8(2 * w), key8(2*w + 1)}
			for n := uint64(1); !stop.Load(); n++ {
				ops := []Op{{Kind: OpUpsert, Key: pair[0], Value: key8(n)}, {Kind: OpUpsert, Key: pair[1], Value: key8(n)}}
				var err error
				if w < pairs {
					err = s.Atomically(context.Background(), pair, func() error { return s.Do(context.Background(), ops) })
				} else {
					err = s.DoWhole(context.Background(), ops)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	s := st.NewSession()
	for range clears {
		if err := st.Clear(context.Background()); err != nil {
			t.Fatal(err)
		}
		for w := range uint64(pairs) {
			pair := [][]byte{key8(2 * w), key8(2*w + 1)}
			ops := []Op{{Key: pair[0]}, {Key: pair[1]}}
			if err := s.ReadAtomically(context.Background(), pair, func() error { return s.Do(context.Background(), ops) }); err != nil {
				t.Fatal(err)
			}
			if !errors.Is(ops[1].Err, ops[0].Err) || string(ops[0].Value) != string(ops[1].Value) {
				t.Fatalf("pair %d: %x, %v and %x, %v", w, ops[0].Value, ops[0].Err, ops[1].Value, ops[1].Err)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	keys := found(t, st, 4*pairs)
	for w := range uint64(2 * pairs) {
		a, errA := s.Read(key8(2*w), nil)
		b, errB := s.Read(key8(2*w+1), nil)
		if !errors.Is(errA, errB) || string(a) != string(b) {
			t.Errorf("pair %d: %x, %v and %x, %v", w, a, errA, b, errB)
		}
	}
	if n, _, _ := st.KeyCount(); n != int64(keys) {
		t.Errorf("counted %d keys, there are %d", n, keys)
	}
	closeAll(t, s, st)
}

// TestClearForgetsTheCount checks the number of keys, and of expiring keys, after Clear.
func TestClearForgetsTheCount(t *testing.T) {
	opts := small(device.NewMemory(), 8, 8)
	opts.CountKeys = true
	now := int64(MinExpires)
	opts.now = func() int64 { return now }
	st := open(t, opts)
	s := st.NewSession()
	want := func(all, expiring int64) {
		t.Helper()
		if a, e, _ := st.KeyCount(); a != all || e != expiring {
			t.Errorf("%d keys, %d expiring; want %d and %d", a, e, all, expiring)
		}
	}
	for n := range uint64(100) {
		putUntil(t, s, n, now+1+int64(n%2)*5000)
	}
	now += 3000 // half of them have expired
	want(50, 50)
	mustClear(t, st)
	want(0, 0)
	for n := range uint64(20) {
		putUntil(t, s, n, int64(n%2)*(now+5000))
	}
	want(20, 10)
	closeAll(t, s)
	want(20, 10)
	now += 10_000
	want(10, 0)
	mustClear(t, st)
	want(0, 0)
	closeAll(t, st)
}
