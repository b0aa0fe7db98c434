package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
)

// logKinds are the kinds of checkpoints that can be recovered.
var logKinds = []CheckpointKind{FoldOver, Snapshot, Incremental}

// crash ends a store like a crash of its process. Its sessions are closed.
func crash(t testing.TB, st *Store) {
	t.Helper()
	st.automatic.stop()
	closeAll(t, st.log)
	if err := st.freeMemory(); err != nil {
		t.Error(err)
	}
	st.release()
}

// contents returns the values of the keys from 0 on, 0 for a missing key.
func contents(t testing.TB, st *Store, keys uint64) []uint64 {
	t.Helper()
	s := st.NewSession()
	defer closeAll(t, s)
	values := make([]uint64, keys)
	for n := range keys {
		switch value, err := s.Read(key8(n), nil); {
		case err == nil:
			values[n] = binary.LittleEndian.Uint64(value)
		case !errors.Is(err, ErrNotFound):
			t.Fatalf("key %d: %v", n, err)
		}
	}
	return values
}

// scribble runs random writes, updates and deletes.
func scribble(t testing.TB, st *Store, rng *rand.Rand, keys uint64, n int) {
	t.Helper()
	s := st.NewSession()
	defer closeAll(t, s)
	for range n {
		key := key8(rng.Uint64N(keys))
		var err error
		switch rng.IntN(4) {
		case 0:
			err = s.RMW(key, add(rng.Uint64()|1))
		case 1:
			err = s.Delete(key)
		default:
			err = s.Upsert(key, key8(rng.Uint64()|1))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func mustCheckpoint(t testing.TB, st *Store, opts CheckpointOptions) CheckpointInfo {
	t.Helper()
	info, err := st.Checkpoint(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestRecoverByName makes checkpoints of random kinds between random operations, crashes, and
// recovers each of them, newest first.
func TestRecoverByName(t *testing.T) {
	const keys = 150
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		disk := device.NewMemory()
		opts := small(disk, 8, 8)
		opts.PageSize = 512 << rng.IntN(3)
		opts.Memory = int64(opts.PageSize) * (4 + rng.Int64N(20))
		opts.Checkpoints.Keep = 20
		opts.indexBits = 2 + rng.IntN(6)
		st := open(t, opts)
		type saved struct {
			info CheckpointInfo
			want []uint64
		}
		var all []saved
		for range 1 + rng.IntN(8) {
			scribble(t, st, rng, keys, rng.IntN(300))
			if rng.IntN(4) == 0 {
				if err := st.Commit(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if rng.IntN(4) == 0 {
				mustCheckpoint(t, st, CheckpointOptions{Kind: Index})
			}
			scribble(t, st, rng, keys, rng.IntN(100))
			info := mustCheckpoint(t, st, CheckpointOptions{
				Kind: logKinds[rng.IntN(len(logKinds))], LogOnly: rng.IntN(3) == 0,
			})
			all = append(all, saved{info, contents(t, st, keys)})
		}
		scribble(t, st, rng, keys, 200)
		for i := len(all) - 1; i >= 0; i-- {
			crash(t, st)
			opts.Recover = all[i].info.Name
			if i == len(all)-1 && rng.IntN(2) == 0 {
				opts.Recover = ""
			}
			opts.Device = disk.Reopen()
			st = open(t, opts)
			name := fmt.Sprintf("seed %d, checkpoint %d of %d: %v\n%v", seed, i, len(all), all[i].info, st.Recovery())
			if got := contents(t, st, keys); !slices.Equal(got, all[i].want) {
				t.Fatalf("%s\nrecovered %v, want %v", name, got, all[i].want)
			}
			if len(st.Checkpoints()) != i+1 || len(st.Recovery().Warnings) > 0 {
				t.Fatalf("%s\n%v are left", name, st.Checkpoints())
			}
			scribble(t, st, rng, keys, 100) // they overwrite newer states
		}
		closeAll(t, st)
		disk.Reopen()
		opts.Recover = "nobody"
		if _, err := Open(opts); !errors.Is(err, ErrNoCheckpoint) || !strings.Contains(err.Error(), all[0].info.Name) {
			t.Errorf("recovered to a checkpoint that never was: %v", err)
		}
	}
}

// TestTruncateWaitsForCheckpoints moves the log's begin address above what a checkpoint
// needs.
func TestTruncateWaitsForCheckpoints(t *testing.T) {
	const keys = 100
	disk := device.NewMemory()
	opts := small(disk, 8, 8)
	st := open(t, opts)
	rng := rand.New(rand.NewPCG(1, 1))
	scribble(t, st, rng, keys, 500)
	old := mustCheckpoint(t, st, CheckpointOptions{Name: "old"})
	want := contents(t, st, keys)
	s := st.NewSession()
	for n := range uint64(keys) { // all records are copied to the tail
		if err := s.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	closeAll(t, s)
	if err := st.truncate(context.Background(), old.Tail); err != nil {
		t.Fatal(err)
	}
	if st.log.Begin() != old.Tail || disk.Begin() > old.Begin {
		t.Errorf("the log begins at %d, the device at %d, the checkpoint at %d", st.log.Begin(), disk.Begin(), old.Begin)
	}
	crash(t, st)
	opts.Device, opts.Recover = disk.Reopen(), "old"
	st = open(t, opts)
	if got := contents(t, st, keys); !slices.Equal(got, want) {
		t.Errorf("recovered %v, want %v", got, want)
	}
	if err := st.truncate(context.Background(), st.log.Begin()); err != nil {
		t.Fatal(err)
	}
	scribble(t, st, rng, keys, 500)
	young := mustCheckpoint(t, st, CheckpointOptions{Name: "young"})
	s = st.NewSession()
	for n := range uint64(keys) {
		if err := s.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	closeAll(t, s)
	if err := errors.Join(st.truncate(context.Background(), young.Tail), st.RemoveCheckpoint(context.Background(), "old"), st.RemoveCheckpoint(context.Background(), "young")); err != nil {
		t.Fatal(err)
	}
	if disk.Begin() != young.Tail {
		t.Errorf("with no checkpoint left the device begins at %d, the log at %d", disk.Begin(), young.Tail)
	}
	for n, got := range contents(t, st, keys) {
		if got != uint64(n) {
			t.Errorf("key %d: %d", n, got)
		}
	}
	closeAll(t, st)
}

// TestRemovedCheckpointTakesNothingAlong removes the newest state. Everything durable stays
// durable.
func TestRemovedCheckpointTakesNothingAlong(t *testing.T) {
	disk := device.NewMemory()
	opts := small(disk, 8, 8)
	st := open(t, opts)
	if err := st.Upsert(context.Background(), key8(1), key8(2)); err != nil {
		t.Fatal(err)
	}
	info := mustCheckpoint(t, st, CheckpointOptions{Kind: Snapshot})
	if err := st.RemoveCheckpoint(context.Background(), info.Name); err != nil {
		t.Fatal(err)
	}
	crash(t, st)
	opts.Device = disk.Reopen()
	st = open(t, opts)
	if got := contents(t, st, 2); got[1] != 2 {
		t.Errorf("after a crash: %v", got)
	}
	closeAll(t, st)
}

// TestCheckpointsKeepTheirCommitPoints recovers a checkpoint several times, with operations
// in between.
func TestCheckpointsKeepTheirCommitPoints(t *testing.T) {
	disk := device.NewMemory()
	opts := small(disk, 8, 8)
	session := func(st *Store) {
		t.Helper()
		s, err := st.NewNamedSession("it")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Upsert(key8(1), key8(s.Serial())); err != nil {
			t.Fatal(err)
		}
		closeAll(t, s)
	}
	st := open(t, opts)
	session(st)
	mustCheckpoint(t, st, CheckpointOptions{Name: "first"})
	opts.Recover = "first"
	for range 3 {
		session(st)
		closeAll(t, st)
		opts.Device = disk.Reopen()
		st = open(t, opts)
		if p, ok := st.CommitPoint("it"); !ok || p.Until != 1 {
			t.Errorf("the session is recovered to %v, %v", p, ok)
		}
	}
	closeAll(t, st)
}

// TestUnsealDuringSnapshot unseals a record while a snapshot copies it. The record must not stay
// sealed.
func TestUnsealDuringSnapshot(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	s := st.NewSession()
	if err := s.Upsert(key8(1), key8(1)); err != nil {
		t.Fatal(err)
	}
	s.enter()
	_, e := s.view.index.Find(st.hash(key8(1)))
	r := s.view.record(e.Address())
	if !r.Seal(r.Header()) {
		t.Fatal("the record cannot be sealed")
	}
	s.sealing.address = e.Address()
	s.leave()
	_ = st.exclusive(context.Background(), func() { st.snapshotTail = st.log.Tail() })
	s.unseal()
	_ = st.exclusive(context.Background(), func() { st.snapshotTail = 0 })
	if r.Header().Sealed() {
		t.Error("the record is sealed")
	}
	closeAll(t, s, st)
}

// silent is a logger for stores that are expected to log errors.
var silent = slog.New(slog.NewTextHandler(io.Discard, nil))
