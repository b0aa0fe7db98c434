package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// writer writes n to key n%keys by operation number n of a session, in one of several ways.
type writer struct {
	id, keys uint64
	s        *Session
	rng      *rand.Rand
	done     [8]*Op
}

func (w *writer) name() string { return fmt.Sprintf("writer %d", w.id) }

func (w *writer) key(n uint64) []byte { return key8(w.id<<32 | n%w.keys) }

// op returns operation number n.
func (w *writer) op(n uint64) Op {
	op := Op{Key: w.key(n), Value: key8(n)}
	switch w.rng.IntN(3) {
	case 0:
		op.Kind = OpUpsert
	default:
		op.Kind, op.Value = OpRMW, nil
		op.Modify = func(u *Update) Verdict {
			u.New = binary.LittleEndian.AppendUint64(u.New, n)
			return Put
		}
	}
	return op
}

// step passes a few operations to the session.
func (w *writer) step() error {
	n := w.s.Serial()
	switch w.rng.IntN(3) {
	case 0:
		op := w.op(n + 1)
		return w.s.Run(&op)
	case 1:
		ops := make([]Op, 1+w.rng.IntN(20))
		for i := range ops {
			ops[i] = w.op(n + 1 + uint64(i))
		}
		return w.s.Do(context.Background(), ops)
	}
	for range w.rng.IntN(20) {
		op := w.op(w.s.Serial() + 1)
		if err := w.s.Submit(&op); err != nil && !errors.Is(err, ErrQueueFull) {
			return err
		}
		for _, op := range w.done[:w.s.Poll(w.done[:w.rng.IntN(len(w.done))])] {
			if op.Err != nil {
				return op.Err
			}
		}
	}
	return nil
}

// drain polls until no operation is pending.
func (w *writer) drain() error {
	for w.s.Pending() > 0 {
		if err := w.s.Wait(context.Background()); err != nil {
			return err
		}
		w.s.Poll(w.done[:])
	}
	return nil
}

// check compares the recovered state with the commit point.
func (w *writer) check(st *Store) error {
	p, _ := st.CommitPoint(w.name())
	s, err := st.NewNamedSession(w.name())
	if err != nil {
		return err
	}
	if s.Serial() != p.Until {
		err = fmt.Errorf("%s goes on from %d, commit point %+v", w.name(), s.Serial(), p)
	}
	for k := range w.keys {
		want := uint64(0)
		for n := k; n <= p.Until; n += w.keys {
			if n > 0 && !slices.Contains(p.Excluding, n) {
				want = n
			}
		}
		value, e := s.Read(w.key(k), nil)
		got := uint64(0)
		if e == nil {
			got = binary.LittleEndian.Uint64(value)
		} else if !errors.Is(e, ErrNotFound) {
			err = errors.Join(err, e)
		}
		if got != want {
			err = errors.Join(err, fmt.Errorf("%s, key %d: %d, want %d; commit point %+v", w.name(), k, got, want, p))
		}
	}
	// The reads above have numbers, too. The caller resets them.
	return errors.Join(err, s.Close())
}

// TestCheckpointsArePrefixes crashes stores while sessions write, checkpoints of each kind are
// made, the index grows and the log is compacted. For each session, exactly the operations of
// its commit point are recovered.
func TestCheckpointsArePrefixes(t *testing.T) {
	kinds := append([]CheckpointKind{Index}, logKinds...)
	for try, excluded := uint64(0), 0; excluded == 0 && !t.Failed(); try++ { // with few processors there may be none
		if try == 10 {
			t.Fatal("no operation was under way in any checkpoint: nothing was shown about those")
		}
		for _, kind := range kinds {
			t.Run(kind.String(), func(t *testing.T) { excluded += crashBetweenCheckpoints(t, kind, try) })
		}
	}
}

// crashBetweenCheckpoints crashes several stores, and returns the number of operations that
// the commit points exclude.
func crashBetweenCheckpoints(t *testing.T, kind CheckpointKind, seed uint64) (excluded int) {
	const writers, rounds = 3, 6
	disk := device.NewMemory()
	for round := range uint64(rounds) {
		opts := small(device.NewFaulty(disk.Reopen(), device.FaultyOptions{Seed: seed<<8 | round, Delay: 0.9, MaxDelay: 100}), 8, 8)
		opts.Memory, opts.indexBits = 8<<10, 4
		st := open(t, opts)
		var wg sync.WaitGroup
		var stop atomic.Bool
		var steps atomic.Int64
		for id := range uint64(writers) {
			w := &writer{id: id, keys: 250, rng: rand.New(rand.NewPCG(seed<<8|round, id))}
			if err := w.check(st); err != nil {
				t.Fatalf("round %d: %v\n%v", round, err, st.Recovery())
			}
			p, _ := st.CommitPoint(w.name())
			excluded += len(p.Excluding)
			st.mu.Lock()
			st.ended[w.name()] = p // forget the reads of check
			st.mu.Unlock()
			var err error
			if w.s, err = st.NewNamedSession(w.name()); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				defer func() { closeAll(t, w.s) }()
				for !stop.Load() {
					if err := w.step(); err != nil {
						t.Error(err)
						return
					}
					steps.Add(1)
				}
				if err := w.drain(); err != nil {
					t.Error(err)
				}
			})
		}
		ctx := context.Background()
		for n := range int64(4) {
			testrun.Until(t, "the writers have begun", func() bool { return steps.Load() >= 30*(n+1) || t.Failed() })
			mustCheckpoint(t, st, CheckpointOptions{Kind: kind})
			if kind == Index || round%2 == 0 {
				if err := st.Commit(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if round == 3 {
				if err := st.GrowIndex(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if round == 4 {
				if _, err := st.Compact(ctx, CompactOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		stop.Store(true)
		wg.Wait()
		crash(t, st)
	}
	return excluded
}
