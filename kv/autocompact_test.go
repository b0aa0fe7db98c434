package kv

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// TestDeadShareIsEstimated overwrites and deletes a known share of the records.
func TestDeadShareIsEstimated(t *testing.T) {
	for _, dead := range []int{0, 25, 50, 90} {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			st := open(t, small(device.NewMemory(), 8, 8))
			const keys = 5000
			for n := range uint64(keys) {
				if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
					t.Fatal(err)
				}
			}
			end := st.log.Tail() // without the tombstones
			rng := rand.New(rand.NewPCG(1, uint64(dead)))
			for n := range uint64(keys) {
				if rng.IntN(100) < dead {
					if err := st.Delete(context.Background(), key8(n)); err != nil {
						t.Fatal(err)
					}
				}
			}
			share, err := st.deadShare(t.Context(), st.log.Begin(), end)
			if err != nil || math.Abs(share-float64(dead)/100) > 0.08 {
				t.Errorf("estimated as %.2f, %v", share, err)
			}
			closeAll(t, st)
		})
	}
}

// TestAutomaticCompactionBounds checks after every few operations. If keys are overwritten,
// the log stays short. If not, compaction stops after a while.
func TestAutomaticCompactionBounds(t *testing.T) {
	for name, auto := range map[string]AutoCompaction{
		"by size":       {LogSize: 64 << 10},
		"by dead share": {DeadShare: 0.5},
		"both":          {LogSize: 64 << 10, DeadShare: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			auto.Every, auto.Share = time.Hour, 1
			opts := small(device.NewMemory(), 8, 8)
			opts.Compaction = auto
			st := open(t, opts)
			const keys = 500 // 12 KB
			want := map[string]string{}
			rng := rand.New(rand.NewPCG(1, 1))
			longest := int64(0)
			for n := range 20_000 {
				key, value := key8(rng.Uint64N(keys)), key8(uint64(n))
				if err := st.Upsert(context.Background(), key, value); err != nil {
					t.Fatal(err)
				}
				want[string(key)] = string(value)
				if n%200 == 0 {
					st.autoCompactor.compactIfDue()
				}
				longest = max(longest, st.log.Tail()-st.log.Begin())
			}
			if longest > 100<<10 {
				t.Errorf("the log was %d bytes long", longest)
			}
			check(t, st, keys, want)
			closeAll(t, st)

			opts.Device = device.NewMemory()
			st = open(t, opts)
			for n := range uint64(8000) { // all are live, and larger than LogSize
				if err := st.Upsert(context.Background(), key8(n), key8(n)); err != nil {
					t.Fatal(err)
				}
			}
			runs := 0
			for range 50 {
				if st.autoCompactor.compactIfDue() {
					runs++
				}
			}
			if runs > 5 {
				t.Errorf("%d compactions of a log in which all is live", runs)
			}
			closeAll(t, st)
		})
	}
}

// TestAutomaticCompactionRuns compacts in the background during writes, and closes the store
// meanwhile.
func TestAutomaticCompactionRuns(t *testing.T) {
	for range 20 {
		ended := make(chan CompactionEndInfo, 1)
		opts := small(device.NewMemory(), 8, 8)
		opts.Compaction = AutoCompaction{LogSize: 16 << 10, Every: time.Microsecond, Share: 0.5}
		opts.Events.CompactionEnd = func(info CompactionEndInfo) {
			select {
			case ended <- info:
			default:
			}
		}
		st := open(t, opts)
		s := st.NewSession()
		want := map[string]string{}
		for n := uint64(0); ; n++ {
			if err := s.Upsert(key8(n%500), key8(n)); err != nil {
				t.Fatal(err)
			}
			want[string(key8(n%500))] = string(key8(n))
			select {
			case info := <-ended:
				if info.Err != nil {
					t.Error(info.Err)
				}
			default:
				continue
			}
			break
		}
		if err := st.Close(); err == nil {
			t.Fatal("closed with a session open")
		}
		check(t, st, 500, want)
		closeAll(t, s, st)
	}
}

func TestAutomaticCompactionRefusesNonsense(t *testing.T) {
	for _, auto := range []AutoCompaction{
		{DeadShare: 1}, {DeadShare: -1}, {LogSize: -1}, {Share: 2}, {Every: -1}, {Method: 9},
	} {
		opts := small(device.NewMemory(), 8, 8)
		opts.Compaction = auto
		if st, err := Open(opts); err == nil {
			t.Errorf("%+v was taken", auto)
			closeAll(t, st)
		}
	}
}

// TestAutomaticCompactionCatchesUp overwrites the same keys many times before the first check.
// Afterwards few dead records are left.
func TestAutomaticCompactionCatchesUp(t *testing.T) {
	opts := small(device.NewMemory(), 8, 8)
	opts.Compaction = AutoCompaction{DeadShare: 0.5, Every: time.Hour, Share: 1}
	st := open(t, opts)
	const keys = 500 // 12 KB
	want := map[string]string{}
	for n := range uint64(50_000) {
		if err := st.Upsert(context.Background(), key8(n%keys), key8(n)); err != nil {
			t.Fatal(err)
		}
		want[string(key8(n%keys))] = string(key8(n))
	}
	before := st.log.Tail() - st.log.Begin()
	if behind, err := st.autoCompactor.due(t.Context()); err != nil || behind < 10 {
		t.Errorf("with 99 dead records for each live one it is behind by a factor of %g, %v", behind, err)
	}
	st.autoCompactor.catchUp()
	if length := st.log.Tail() - st.log.Begin(); length > 100<<10 || before < 1<<20 {
		t.Errorf("the log was %d bytes long and is %d", before, length)
	}
	check(t, st, keys, want)
	closeAll(t, st)
}

// TestAutomaticCompactionHasATrigger sets neither DeadShare nor LogSize.
func TestAutomaticCompactionHasATrigger(t *testing.T) {
	for _, auto := range []AutoCompaction{{Share: 0.5}, {Every: time.Millisecond}, {Method: CompactByScan}} {
		auto.Every = time.Millisecond
		opts := small(device.NewMemory(), 8, 8)
		opts.Compaction = auto
		compacted := make(chan struct{}, 1)
		opts.Events.CompactionEnd = func(CompactionEndInfo) {
			select {
			case compacted <- struct{}{}:
			default:
			}
		}
		st := open(t, opts)
		s := st.NewSession()
		for n := range uint64(4000) { // nearly all of the log is dead
			putUntil(t, s, n%200, 0)
			if n%200 == 199 {
				if err := st.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		testrun.Receive(t, "the log is compacted", compacted)
		if got := st.opts.Compaction.DeadShare; got != DefaultCompactDead {
			t.Errorf("%+v: DeadShare %g", auto, got)
		}
		for n := range uint64(200) {
			readBack(s.Read(key8(n), nil)).Want(t, key8(n), "key %d", n)
		}
		closeAll(t, s, st)
	}
	if st := open(t, small(device.NewMemory(), 8, 8)); st.opts.Compaction.DeadShare != 0 || st.opts.Compaction.LogSize != 0 {
		t.Errorf("by default %+v", st.opts.Compaction)
	} else {
		closeAll(t, st)
	}
}
