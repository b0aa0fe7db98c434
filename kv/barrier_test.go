package kv

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/redykv/redykv/device"
)

// TestSerialCountsWhatWasGiven passes operations to a session in every way. Some are refused.
func TestSerialCountsWhatWasGiven(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	s, err := st.NewNamedSession("teller")
	if err != nil {
		t.Fatal(err)
	}
	want := uint64(0)
	given := func(n uint64) {
		t.Helper()
		if want += n; s.Serial() != want {
			t.Fatalf("serial %d, want %d", s.Serial(), want)
		}
	}
	for n := range uint64(500) {
		if err := s.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	given(500)
	if _, err := s.Read(key8(1), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Upsert([]byte("short"), key8(1)); !errors.Is(err, ErrBadSize) {
		t.Fatal(err)
	}
	given(2)
	ops := make([]Op, 40)
	for i := range ops {
		ops[i] = Op{Kind: OpRMW, Key: key8(uint64(i) * 7), Modify: add(1)}
	}
	ops[3].Modify = nil
	if err := s.Do(context.Background(), ops); err == nil {
		t.Error("an RMW without a Modifier is no error")
	}
	given(40)
	for i := range 5 {
		ops[i] = Op{Kind: OpRMW, Key: key8(uint64(i)), Modify: add(1)}
		if err := s.Submit(&ops[i]); err != nil {
			t.Fatal(err)
		}
	}
	given(5)
	closeAll(t, s)
	if s, err = st.NewNamedSession("teller"); err != nil {
		t.Fatal(err)
	}
	given(0)
	if _, err := st.NewNamedSession("teller"); !errors.Is(err, ErrNameInUse) {
		t.Errorf("a second session of the name: %v", err)
	}
	for _, name := range []string{"", strings.Repeat("n", maxName+1)} {
		if _, err := st.NewNamedSession(name); !errors.Is(err, ErrBadName) {
			t.Errorf("a session named %q: %v", name, err)
		}
	}
	closeAll(t, s, st)
}

// TestSessionNamesAreKept opens sessions with names of all bytes. Each name is refused, or has
// its commit point after a restart.
func TestSessionNamesAreKept(t *testing.T) {
	names := []string{"\xff", "teller\xc3", "\xed\xa0\x80", "\ufffd", "\u2028 <&> \x00\"\\", "Zoë"}
	for b := range 256 {
		names = append(names, string([]byte{byte(b)}))
	}
	dev := device.NewMemory()
	st := open(t, small(dev, 8, 8))
	want := map[string]uint64{}
	for i, name := range names {
		s, err := st.NewNamedSession(name)
		if err != nil {
			if !errors.Is(err, ErrBadName) || utf8.ValidString(name) {
				t.Errorf("a session named %q: %v", name, err)
			}
			continue
		}
		want[name] = uint64(i + 1)
		for range want[name] {
			if err := s.Upsert(key8(1), key8(1)); err != nil {
				t.Fatal(err)
			}
		}
		closeAll(t, s)
	}
	closeAll(t, st)
	st = open(t, small(dev.Reopen(), 8, 8))
	for name, until := range want {
		if p, ok := st.CommitPoint(name); !ok || p.Until != until {
			t.Errorf("session %q: %v, %v, want until %d", name, p, ok, until)
		}
	}
	closeAll(t, st)
}

// TestCommitPointsAgreeWithTheLog holds barriers while sessions increment counters in all
// ways. In the barrier, each counter agrees with the commit point.
func TestCommitPointsAgreeWithTheLog(t *testing.T) {
	const sessions, rounds = 3, 100
	st := open(t, small(device.NewMemory(), 8, 8))
	var stop atomic.Bool
	var wg sync.WaitGroup
	for id := range uint64(sessions) {
		s, err := st.NewNamedSession(string(rune('a' + id)))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer closeAll(t, s)
			for ops := make([]Op, 20); !stop.Load(); {
				for i := range ops {
					ops[i] = Op{Kind: OpRMW, Key: key8(id), Modify: add(1)}
				}
				if err := s.Do(context.Background(), ops); err != nil {
					t.Error(err)
					return
				}
				for range 20 {
					if err := s.RMW(key8(id), add(1)); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	reader := st.makeSession()
	for range rounds {
		var points map[string]CommitPoint
		_ = st.exclusive(context.Background(), func() {
			points = st.commitPoints()
			reader.view.look(st)
			for id := range uint64(sessions) {
				p := points[string(rune('a'+id))]
				_, e := st.index.Load().Find(st.hash(key8(id)))
				if r, _, _, ok := reader.lookup(key8(id), e.Address(), reader.view.head); ok {
					if got := r.Word1(); got != p.Until-uint64(len(p.Excluding)) {
						t.Errorf("session %d: %d in the log, commit point %+v", id, got, p)
					}
				}
			}
		})
		runtime.Gosched()
	}
	stop.Store(true)
	wg.Wait()
	closeAll(t, st)
}

// TestWholeBatchesAreCommittedWhole commits while sessions run whole batches with pending
// operations: each commit point is the end of a batch.
func TestWholeBatchesAreCommittedWhole(t *testing.T) {
	const sessions, keys, batch, commits = 3, 250, 20, 40
	opts := small(device.NewFaulty(device.NewMemory(), device.FaultyOptions{Delay: 0.9, MaxDelay: 100}), 8, 8)
	opts.Memory, opts.indexBits = 8<<10, 4
	st := open(t, opts)
	var stop atomic.Bool
	var wg sync.WaitGroup
	name := func(id uint64) string { return string(rune('a' + id)) }
	for id := range uint64(sessions) {
		s, err := st.NewNamedSession(name(id))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer closeAll(t, s)
			ops := make([]Op, batch)
			for n := uint64(0); !stop.Load(); {
				for i := range ops {
					ops[i] = Op{Kind: OpRMW, Key: key8(id<<32 | n%keys), Modify: add(1)}
					n += 7
				}
				if err := s.DoWhole(context.Background(), ops); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range commits {
		if err := st.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for id := range uint64(sessions) {
			if p, _ := st.CommitPoint(name(id)); p.Until%batch != 0 || len(p.Excluding) > 0 {
				t.Errorf("session %d: commit point %+v in batches of %d", id, p, batch)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	closeAll(t, st)
}
