package kv

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// A store that ends on a full device loses nothing that is in its last commit or checkpoint, whatever
// it did since.
func TestCommitWrittenKeepsStates(t *testing.T) {
	const committed, all = 10_000, 25_000
	for name, c := range map[string]struct {
		before func(t *testing.T, st *Store) // there is space
		after  func(t *testing.T, st *Store) // and then there is none
		keys   uint64                        // which are there
	}{
		"a copy of the index of what is not written": {
			before: func(t *testing.T, st *Store) { mustCheckpoint(t, st, CheckpointOptions{Kind: Index}) }, keys: committed,
		},
		"a snapshot of what is not written": {
			before: func(t *testing.T, st *Store) {
				mustCheckpoint(t, st, CheckpointOptions{Kind: Snapshot, Name: "snap", LogOnly: true})
			}, keys: all,
		},
		"a compaction": {
			after: func(t *testing.T, st *Store) {
				if _, err := st.Compact(t.Context(), CompactOptions{Until: 4096}); !errors.Is(err, device.ErrNoSpace) {
					t.Errorf("compaction: %v", err)
				}
			}, keys: committed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inner := device.NewMemory()
			full := device.NewFaulty(inner, device.FaultyOptions{})
			opts := small(full, 8, 8)
			opts.Memory, opts.PageSize, opts.Records, opts.Logger = 256<<10, 4096, 1<<14, silent
			st := open(t, opts)
			fill := func(from, to uint64) {
				for n := from; n < to; n++ {
					if err := st.Upsert(t.Context(), key8(n), key8(n)); err != nil {
						t.Fatal(err)
					}
				}
			}
			fill(0, committed)
			if err := st.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			fill(committed, all)
			page := int64(opts.PageSize)
			head := (st.log.Tail()/page + 2 - opts.Memory/page) * page
			testrun.Until(t, "what is read-only is written, and there is a page for more", func() bool {
				return st.log.LastWritten() >= st.log.Block(st.log.SafeReadOnly()) && st.log.Head() >= head
			})
			if c.before != nil {
				c.before(t, st)
			}
			full.Set(device.FaultyOptions{Full: true})
			if c.after != nil {
				c.after(t, st)
			}
			if err := st.Commit(t.Context()); !errors.Is(err, device.ErrNoSpace) {
				t.Errorf("a commit: %v", err)
			}
			if _, err := st.CommitWritten(t.Context()); err != nil {
				t.Errorf("a commit of what is written: %v", err)
			}
			if err := st.Close(); !errors.Is(err, device.ErrNoSpace) {
				t.Errorf("Close: %v", err)
			}
			opts.Device = inner.Reopen()
			again := open(t, opts)
			for n := range c.keys {
				readBack(again.Read(t.Context(), key8(n), nil)).Want(t, key8(n), "key %d", n)
			}
			if err := again.Commit(t.Context()); err != nil {
				t.Errorf("the next commit: %v", err)
			}
			closeAll(t, again)
		})
	}
}

// CommitWritten beside Clear: what a Clear removed is not lost.
func TestCommitWrittenBesideClear(t *testing.T) {
	opts := small(device.NewMemory(), 8, 8)
	opts.Records = 1
	st := open(t, opts)
	var stop atomic.Bool
	var clearing sync.WaitGroup
	clearing.Go(func() {
		for n := uint64(0); !stop.Load(); n++ {
			if err := errors.Join(st.Upsert(t.Context(), key8(n), key8(n)), st.Clear(t.Context())); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 20_000 {
		if lost, err := st.CommitWritten(t.Context()); err != nil || lost < 0 {
			t.Errorf("%d bytes lost, %v", lost, err)
			break
		}
	}
	stop.Store(true)
	clearing.Wait()
	closeAll(t, st)
}
