package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// withInner returns options of a store whose inner records have keys "n/OWNER/…". They are orphans
// if there is no record OWNER.
func withInner(dev device.Device) Options {
	opts := small(dev, 0, 0)
	opts.CountKeys = true
	opts.Inner = func(key []byte) bool { return strings.HasPrefix(string(key), "n/") }
	opts.Orphans = func(ctx context.Context, s *Session, keys [][]byte, orphan []bool) error {
		ops := make([]Op, len(keys))
		for i, key := range keys {
			ops[i] = Op{Kind: OpRead, Key: []byte(strings.Split(string(key), "/")[1])}
		}
		err := s.Do(ctx, ops)
		for i := range ops {
			orphan[i] = errors.Is(ops[i].Err, ErrNotFound)
		}
		return err
	}
	return opts
}

// addOwner writes an owner with inner records in one transaction.
func addOwner(t *testing.T, st *Store, owner string, parts int) {
	t.Helper()
	ctx := context.Background()
	err := st.Atomically(ctx, [][]byte{[]byte(owner)}, func(s *Session) error {
		ops := []Op{{Kind: OpUpsert, Key: []byte(owner), Value: []byte("owner")}}
		for i := range parts {
			ops = append(ops, Op{Kind: OpUpsert, Key: fmt.Appendf(nil, "n/%s/%d", owner, i), Value: []byte(strings.Repeat("v", 100))})
		}
		return s.DoWhole(ctx, ops)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// scanned returns the keys that both scans find.
func scanned(t *testing.T, st *Store) (log, index int) {
	t.Helper()
	for r, err := range st.Scan() {
		if err != nil {
			t.Fatal(err)
		}
		if st.opts.Inner(r.Key) {
			t.Fatalf("a scan found the inner record %q", r.Key)
		}
		log++
	}
	for at, begun := Cursor(0), false; at != 0 || !begun; begun = true {
		var err error
		if at, err = st.ScanFrom(at, 5, func(r Record) bool {
			if st.opts.Inner(r.Key) {
				t.Fatalf("a scan in steps found the inner record %q", r.Key)
			}
			index++
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	return log, index
}

// innerRecords counts the inner records that can be read.
func innerRecords(t *testing.T, st *Store, owner string, parts int) (n int) {
	t.Helper()
	for i := range parts {
		op := Op{Kind: OpRead, Key: fmt.Appendf(nil, "n/%s/%d", owner, i)}
		switch err := st.Run(context.Background(), &op); {
		case err == nil:
			n++
		case !errors.Is(err, ErrNotFound):
			t.Fatal(err)
		}
	}
	return n
}

// TestInnerRecords checks that inner records are neither counted nor scanned, and that compaction
// drops those of owners that were deleted, and only those, also after a restart.
func TestInnerRecords(t *testing.T) {
	for _, method := range compactMethods {
		t.Run(method.String(), func(t *testing.T) {
			ctx := context.Background()
			dev := device.NewMemory()
			opts := withInner(dev)
			st := open(t, opts)
			const parts = 50
			for _, owner := range []string{"a", "b", "c"} {
				addOwner(t, st, owner, parts)
			}
			if err := st.Delete(ctx, []byte("b")); err != nil {
				t.Fatal(err)
			}
			check := func(when string, b int) {
				t.Helper()
				if n, _, _ := st.KeyCount(); n != 2 {
					t.Errorf("%s: %d keys are counted, want 2", when, n)
				}
				if log, index := scanned(t, st); log != 2 || index != 2 {
					t.Errorf("%s: the scans found %d and %d keys, want 2", when, log, index)
				}
				for owner, want := range map[string]int{"a": parts, "b": b, "c": parts} {
					if n := innerRecords(t, st, owner, parts); n != want {
						t.Errorf("%s: %d records of %s, want %d", when, n, owner, want)
					}
				}
			}
			check("before", parts)
			addOwner(t, st, "a", parts) // old versions are asked about as well
			for i := range 40 {         // all of the above becomes read-only
				if err := st.Upsert(ctx, []byte("c"), fmt.Appendf(nil, "%0200d", i)); err != nil {
					t.Fatal(err)
				}
				if err := st.Commit(ctx); err != nil {
					t.Fatal(err)
				}
			}
			info := mustCompact(t, st, CompactOptions{Method: method})
			if info.Orphans != parts {
				t.Errorf("%d orphans, want %d", info.Orphans, parts)
			}
			check("after", 0)
			crash(t, st)
			opts.Device = dev.Reopen()
			st = open(t, opts)
			check("after a crash", 0)
			closeAll(t, st)
		})
	}
}

// TestInnerNeedNoLock uses inner records within a transaction that locks other keys, and outside of
// it meanwhile.
func TestInnerNeedNoLock(t *testing.T) {
	ctx := context.Background()
	st := open(t, withInner(device.NewMemory()))
	addOwner(t, st, "a", 1)
	part := []byte("n/a/0")
	err := st.Atomically(ctx, [][]byte{[]byte("a")}, func(s *Session) error {
		if err := s.Upsert([]byte("other"), nil); !errors.Is(err, ErrNotLocked) {
			t.Errorf("a write of a key that is not locked: %v", err)
		}
		if err := s.Upsert(part, []byte("changed")); err != nil {
			t.Errorf("a write of an inner record: %v", err)
		}
		readBack(st.Read(ctx, part, nil)).Want(t, []byte("changed"), "another session")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	closeAll(t, st)
}

// TestOrphansFail checks that compaction ends with the error of Options.Orphans.
func TestOrphansFail(t *testing.T) {
	opts := withInner(device.NewMemory())
	failure := errors.New("no")
	opts.Orphans = func(context.Context, *Session, [][]byte, []bool) error { return failure }
	st := open(t, opts)
	addOwner(t, st, "a", 50)
	if _, err := st.Compact(context.Background(), CompactOptions{}); !errors.Is(err, failure) {
		t.Errorf("compaction: %v", err)
	}
	if n := innerRecords(t, st, "a", 50); n != 50 {
		t.Errorf("%d records, want 50", n)
	}
	closeAll(t, st)
	if _, err := Open(Options{Device: device.NewMemory(), Orphans: opts.Orphans}); err == nil {
		t.Error("a store with Orphans and without Inner was opened")
	}
}

// TestOrphansEndWithCompaction: Options.Orphans is told when the compaction ends.
func TestOrphansEndWithCompaction(t *testing.T) {
	opts := withInner(device.NewMemory())
	ctx, cancel := context.WithCancel(t.Context())
	opts.Orphans = func(ctx context.Context, _ *Session, _ [][]byte, _ []bool) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	st := open(t, opts)
	addOwner(t, st, "a", 50)
	if _, err := st.Compact(ctx, CompactOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("compaction: %v", err)
	}
	if n := innerRecords(t, st, "a", 50); n != 50 {
		t.Errorf("%d records, want 50", n)
	}
	closeAll(t, st)
}

// What is submitted within Whole is complete, and seen by others, when it returns, and so is what was
// submitted before it when it begins.
func TestWholeCompletesWhatItSubmits(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	s := st.NewSession()
	value := func(n uint64) uint64 {
		v, err := st.Read(t.Context(), key8(n), nil)
		if errors.Is(err, ErrNotFound) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint64(v)
	}
	ops := []Op{{Kind: OpUpsert, Key: key8(1), Value: key8(7)}, {Kind: OpUpsert, Key: key8(2), Value: key8(8)}}
	if err := s.Submit(&ops[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.Whole(t.Context(), func() error {
		if v := value(1); v != 7 {
			t.Errorf("within, what was submitted before is %d", v)
		}
		return s.Submit(&ops[1])
	}); err != nil {
		t.Fatal(err)
	}
	if v := value(2); v != 8 {
		t.Errorf("afterwards, what was submitted within is %d", v)
	}
	closeAll(t, s, st)
}

// TestWhole checks that a commit during Whole waits for its end, and that Whole nests.
func TestWhole(t *testing.T) {
	ctx := context.Background()
	dev := device.NewMemory()
	opts := small(dev, 0, 0)
	st := open(t, opts)
	s := st.NewSession()
	committed := make(chan error, 1)
	if err := s.Whole(ctx, func() error {
		if err := s.Upsert([]byte("a"), []byte("1")); err != nil {
			return err
		}
		go func() { committed <- st.Commit(ctx) }()
		testrun.Until(t, "the commit waits", st.gate.Waiting)
		err := s.Atomically(ctx, [][]byte{[]byte("b")}, func() error { return s.Upsert([]byte("b"), []byte("2")) })
		return errors.Join(err, s.DoWhole(ctx, []Op{{Kind: OpUpsert, Key: []byte("c")}, {Kind: OpUpsert, Key: []byte("d")}}))
	}); err != nil {
		t.Fatal(err)
	}
	if err := testrun.Receive(t, "the commit ends", committed); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	crash(t, st)
	opts.Device = dev.Reopen()
	st = open(t, opts)
	for _, key := range []string{"a", "b", "c", "d"} {
		if _, err := st.Read(ctx, []byte(key), nil); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	closeAll(t, st)
}

// TestOutside checks that a commit within Outside contains what Whole has changed before, and that a later
// one waits for the end of Whole again.
func TestOutside(t *testing.T) {
	ctx := context.Background()
	st := open(t, small(device.NewMemory(), 0, 0))
	s := st.NewSession()
	committed := make(chan error, 1)
	if err := s.Whole(ctx, func() error {
		if err := s.Upsert([]byte("a"), []byte("1")); err != nil {
			return err
		}
		if err := s.Outside(func() error { return errors.Join(st.Commit(ctx), st.Clear(ctx)) }); err != nil {
			return err
		}
		if err := s.Upsert([]byte("b"), []byte("1")); err != nil {
			return err
		}
		go func() { committed <- st.Commit(ctx) }()
		testrun.Until(t, "the commit waits", st.gate.Waiting)
		return s.Upsert([]byte("c"), []byte("1"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := testrun.Receive(t, "the commit ends", committed); err != nil {
		t.Fatal(err)
	}
	if err := s.Outside(func() error { return st.Commit(ctx) }); err != nil {
		t.Error(err)
	}
	if err := s.Atomically(ctx, nil, func() error { return s.Outside(func() error { return nil }) }); !errors.Is(err, ErrHoldsLocks) {
		t.Errorf("within Atomically: %v", err)
	}
	for key, want := range map[string]error{"a": ErrNotFound, "b": nil, "c": nil} {
		if _, err := s.Read([]byte(key), nil); !errors.Is(err, want) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	closeAll(t, st)
}
