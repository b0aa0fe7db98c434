package kv

import (
	"context"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
)

// Do returns an error of an operation unless it is ErrNotFound or ErrExists. The session
// remains usable: its Err is nil.
func TestErrorsOfBatches(t *testing.T) {
	st := open(t, Options{Device: device.NewMemory(), KeySize: 8, ValueSize: 8, Memory: 1 << 20, Records: 1 << 10})
	s := st.NewSession()
	for name, do := range map[string]func(context.Context, []Op) error{"Do": s.Do, "DoWhole": s.DoWhole} {
		key := key8(uint64(len(name)))
		ops := []Op{
			{Kind: OpInsert, Key: key, Value: key},
			{Kind: OpInsert, Key: key, Value: key},
			{Kind: OpRead, Key: key8(99)},
			{Kind: OpRead, Key: key},
		}
		if err := do(context.Background(), ops); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, want := range []error{nil, ErrExists, ErrNotFound, nil} {
			if !errors.Is(ops[i].Err, want) || (want == nil) != (ops[i].Err == nil) {
				t.Errorf("%s: operation %d: %v, want %v", name, i, ops[i].Err, want)
			}
		}
		ops = append(ops, Op{Kind: OpUpsert, Key: []byte("short"), Value: key})
		if err := do(context.Background(), ops); !errors.Is(err, ErrBadSize) || s.Err() != nil {
			t.Errorf("%s: %v, and of the session %v", name, err, s.Err())
		}
	}
	closeAll(t, s, st)
	if err := s.Err(); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed session: %v", err)
	}
}

// The number of the next successful commit or checkpoint of any kind is at least the result of
// NextCommit.
func TestCommitNumbers(t *testing.T) {
	faulty := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	st := open(t, Options{Device: faulty, KeySize: 8, ValueSize: 8, Memory: 1 << 20, Records: 1 << 10})
	commit := func() error { return st.Commit(t.Context()) }
	checkpoint := func(kind CheckpointKind) func() error {
		return func() error {
			_, err := st.Checkpoint(t.Context(), CheckpointOptions{Kind: kind})
			return err
		}
	}
	for i, make := range []func() error{commit, commit, checkpoint(Snapshot), checkpoint(Incremental), commit, checkpoint(FoldOver)} {
		if i == 4 {
			if err := st.Clear(context.Background()); err != nil {
				t.Fatal(err)
			}
		} else if err := st.Upsert(context.Background(), key8(1), key8(uint64(i))); err != nil {
			t.Fatal(err)
		}
		needs := st.NextCommit()
		if last := st.LastCommit(); last >= needs {
			t.Errorf("%d: before it is %d, and %d is needed", i, last, needs)
		}
		faulty.Set(device.FaultyOptions{SyncError: 1})
		if err := make(); err == nil {
			t.Errorf("%d: no error", i)
		}
		if last := st.LastCommit(); last >= needs {
			t.Errorf("%d: after a failure it is %d, and %d is needed", i, last, needs)
		}
		faulty.Set(device.FaultyOptions{})
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if last := st.LastCommit(); last < needs || last >= st.NextCommit() {
			t.Errorf("%d: it is %d, %d was needed, and the next one is %d", i, last, needs, st.NextCommit())
		}
	}
	if err := checkpoint(Index)(); err != nil {
		t.Fatal(err)
	}
	closeAll(t, st)
}
