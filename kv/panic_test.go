package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
)

// panicking calls f and reports whether it panicked.
func panicking(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

// pollAll polls until no operation is left, recovers from panics, and counts how often each
// operation was handed back.
func pollAll(s *Session) map[*Op]int {
	times := map[*Op]int{}
	var done [8]*Op
	for s.Pending() > 0 {
		panicking(func() {
			for _, op := range done[:s.Poll(done[:])] {
				times[op]++
			}
		})
	}
	return times
}

func TestModifierThatPanicsHoldsNothingUp(t *testing.T) {
	st := open(t, small(device.NewMemory(), 0, 0))
	s := st.NewSession()
	if err := s.Upsert([]byte("k"), []byte("value")); err != nil {
		t.Fatal(err)
	}
	if !panicking(func() { _ = s.RMW([]byte("k"), func(*Update) Verdict { panic("modifier") }) }) {
		t.Error("no panic")
	}
	readBack(s.Read([]byte("k"), nil)).Want(t, []byte("value"), "read")
	for n := range uint64(1000) { // evicts pages, so no session has stayed in an epoch
		if err := s.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	closeAll(t, s, st)
}

func TestModifierThatPanicsOnAColdRecordLands(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	s := st.NewSession()
	for n := range uint64(1000) {
		if err := s.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	if !panicking(func() {
		_ = s.Do(context.Background(), []Op{
			{Kind: OpRMW, Key: key8(1), Modify: func(*Update) Verdict { panic("modifier") }},
			{Kind: OpRead, Key: key8(2)}, // completes with it
		})
	}) {
		t.Error("no panic")
	}
	if err := s.awaitBatch(); err != nil || len(s.free) != len(s.pending) {
		t.Fatalf("%d operations pending: %v", len(s.pending)-len(s.free), err)
	}
	readBack(s.Read(key8(1), nil)).Want(t, key8(1), "read")
	closeAll(t, s, st)
}

// TestModifierThatPanicsOnACachedRecord panics while a lane is finished. Every operation of
// the stream is still handed back once.
func TestModifierThatPanicsOnACachedRecord(t *testing.T) {
	o := small(device.NewMemory(), 8, 8)
	o.Memory, o.ReadCache = 2*o.Memory, 0.5
	st := open(t, o)
	s := st.NewSession()
	for n := range uint64(1000) {
		if err := s.Upsert(key8(n), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(4) {
		if _, err := s.Read(key8(n), nil); err != nil {
			t.Fatal(err)
		}
	}
	keep := func(u *Update) Verdict { return Keep }
	ops := []Op{
		{Kind: OpRMW, Key: key8(0), Modify: keep},
		{Kind: OpRMW, Key: key8(1), Modify: func(*Update) Verdict { panic("modifier") }},
		{Kind: OpRMW, Key: key8(2), Modify: keep},
		{Kind: OpRead, Key: key8(3)},
	}
	times := map[*Op]int{}
	panics := 0
	poll := func() {
		defer func() {
			if recover() != nil {
				panics++
			}
		}()
		var done [8]*Op
		for _, op := range done[:s.Poll(done[:])] {
			times[op]++
		}
	}
	for i := range ops {
		if err := s.Submit(&ops[i]); err != nil {
			t.Fatal(err)
		}
	}
	for s.Pending() > 0 {
		poll()
	}
	for i := range ops {
		if times[&ops[i]] != 1 || (ops[i].Err != nil) != (i == 1) {
			t.Errorf("operation %d came back %d times with %v", i, times[&ops[i]], ops[i].Err)
		}
	}
	if panics != 1 || s.Serial() != 1000+4+4 || len(s.free) != len(s.pending) {
		t.Errorf("%d panics, %d operations counted, %d operations pending", panics, s.Serial(), len(s.pending)-len(s.free))
	}
	if m := st.Metrics(); m.ReadsFrom.Cache == 0 {
		t.Errorf("the cache took no part:\n%v", m)
	}
	closeAll(t, s, st)
}

// TestStreamGoesOnAfterAPanic submits more operations after Submit has panicked with an
// earlier operation's Modifier.
func TestStreamGoesOnAfterAPanic(t *testing.T) {
	for name, size := range map[string]int{"words": 8, "wide": 24} {
		t.Run(name, func(t *testing.T) {
			o := small(device.NewMemory(), 8, size)
			o.QueueDepth = 1024
			st := open(t, o)
			s := st.NewSession()
			const keys = 8
			for n := range uint64(keys) {
				if err := s.Upsert(key8(n), make([]byte, size)); err != nil {
					t.Fatal(err)
				}
			}
			serial := s.Serial()
			ops := make([]Op, 5*laneSize)
			panics, added := 0, uint64(0)
			for i := range ops {
				ops[i] = Op{Kind: OpRMW, Key: key8(uint64(i % keys)), Modify: func(u *Update) Verdict {
					if i%11 == 3 {
						panic("modifier")
					}
					u.New = append(u.New, u.Old...)
					binary.LittleEndian.PutUint64(u.New, binary.LittleEndian.Uint64(u.Old)+1)
					return Put
				}}
				if panicking(func() {
					if err := s.Submit(&ops[i]); err != nil {
						t.Fatal(err)
					}
				}) {
					panics++
				}
			}
			times := pollAll(s)
			for i := range ops {
				if times[&ops[i]] != 1 || errors.Is(ops[i].Err, errPanicked) != (i%11 == 3) {
					t.Errorf("operation %d came back %d times with %v", i, times[&ops[i]], ops[i].Err)
				}
			}
			for n := range uint64(keys) {
				value, err := s.Read(key8(n), nil)
				if err != nil {
					t.Fatal(err)
				}
				added += binary.LittleEndian.Uint64(value)
			}
			if want := uint64(len(ops) - (len(ops)+7)/11); added != want || panics == 0 {
				t.Errorf("%d additions, want %d; %d panics in Submit", added, want, panics)
			}
			if got := s.Serial() - serial; got != uint64(len(ops)+keys) {
				t.Errorf("%d operations counted, want %d", got, len(ops)+keys)
			}
			closeAll(t, s, st)
		})
	}
}

// TestOpThatPanickedBefore submits an operation twice that panics each time.
func TestOpThatPanickedBefore(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	s := st.NewSession()
	if err := s.Upsert(key8(1), key8(1)); err != nil {
		t.Fatal(err)
	}
	op := Op{Kind: OpRMW, Key: key8(1), Modify: func(*Update) Verdict { panic("modifier") }}
	for range 2 {
		if err := s.Submit(&op); err != nil {
			t.Fatal(err)
		}
		if !panicking(func() { s.Poll(nil) }) || s.streamed != 0 || s.polled.len() != 1 {
			t.Fatalf("no panic, or %d operations under way and %d to be polled", s.streamed, s.polled.len())
		}
		if times := pollAll(s); times[&op] != 1 || !errors.Is(op.Err, errPanicked) {
			t.Fatalf("came back %d times with %v", times[&op], op.Err)
		}
	}
	closeAll(t, s, st)
}
