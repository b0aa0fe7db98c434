package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// addWord returns the WordModifier of a counter.
func addWord(delta uint64) WordModifier {
	return func(old uint64, _ bool) (uint64, Verdict) { return old + delta, Put }
}

func TestRMWWord(t *testing.T) {
	remove := func(uint64, bool) (uint64, Verdict) { return 0, Remove }
	claim := func(_ uint64, found bool) (uint64, Verdict) {
		if found {
			return 0, Keep
		}
		return 7, Put
	}
	for _, opts := range []Options{
		small(device.NewMemory(), 8, 8), small(device.NewMemory(), 0, 0),
	} {
		st := open(t, opts)
		s := st.NewSession()
		for _, key := range [][]byte{key8(1 << 40), key8(1<<40 + 1)} {
			for i, step := range []struct {
				modify WordModifier
				want   []byte
			}{
				{remove, nil}, {addWord(3), key8(3)}, {addWord(4), key8(7)}, {remove, nil}, {claim, key8(7)},
				{addWord(1), key8(8)}, {claim, key8(8)}, {addWord(^uint64(0)), key8(7)},
			} {
				for n := range uint64(1000) { // evicts the record; the next round finds it in memory
					if i%2 == 0 {
						break
					}
					if err := s.Upsert(key8(n), key8(n)); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.RMWWord(key, step.modify); err != nil {
					t.Fatal(err)
				}
				got, err := s.Read(key, nil)
				if string(got) != string(step.want) || (err != nil) != (step.want == nil) {
					t.Errorf("step %d: %x, %v, want %x", i, got, err, step.want)
				}
			}
		}
		closeAll(t, s, st)
		if err := s.RMWWord(key8(1), addWord(1)); !errors.Is(err, ErrClosed) {
			t.Errorf("on a closed store: %v", err)
		}
	}
}

func TestRMWWordRefusesWhatIsNone(t *testing.T) {
	st := open(t, small(device.NewMemory(), 0, 0))
	s := st.NewSession()
	for _, value := range []string{"", "1234567", "123456789"} {
		if err := s.Upsert(key8(1), []byte(value)); err != nil {
			t.Fatal(err)
		}
		if err := s.RMWWord(key8(1), addWord(1)); !errors.Is(err, ErrBadSize) {
			t.Errorf("a value of %d bytes: %v", len(value), err)
		}
		op := Op{Kind: OpRMW, Key: key8(1), ModifyWord: addWord(1)}
		if err := s.Do(context.Background(), []Op{op}); !errors.Is(err, ErrBadSize) {
			t.Errorf("a value of %d bytes, in a batch: %v", len(value), err)
		}
		readBack(s.Read(key8(1), nil)).Want(t, []byte(value), "read")
	}
	closeAll(t, s, st)
	st = open(t, small(device.NewMemory(), 8, 8))
	s = st.NewSession()
	for range 3 { // the last rounds find the record directly
		if err := s.RMWWord([]byte("short"), addWord(1)); err == nil {
			t.Error("a key of 5 bytes where they have 8")
		}
		if err := s.RMWWord(key8(1), nil); err == nil {
			t.Error("no Modifier")
		}
		ops := make([]Op, 5)
		for i := range ops {
			ops[i] = Op{Kind: OpRMW, Key: key8(1), ModifyWord: addWord(1)}
		}
		ops[2].Key = []byte("short")
		if err := s.Do(context.Background(), ops); !errors.Is(err, ErrBadSize) {
			t.Errorf("a key of 5 bytes in a batch: %v", err)
		}
		for i := range ops {
			if bad := ops[i].Err != nil; bad != (i == 2) {
				t.Errorf("operation %d: %v", i, ops[i].Err)
			}
		}
		if err := s.RMWWord(key8(1), addWord(1)); err != nil {
			t.Error(err)
		}
	}
	closeAll(t, s, st)
}

// directSession returns a session whose plain calls go directly to the record of key, which
// has that value.
func directSession(t *testing.T, st *Store, key, value []byte) *Session {
	t.Helper()
	s := st.NewSession()
	for range 2 {
		if err := s.Upsert(key, value); err != nil {
			t.Fatal(err)
		}
	}
	if !s.words {
		t.Skip("plain calls do not go directly to a record on this machine")
	}
	if s.view.wide|s.view.narrow|s.view.direct == 0 {
		t.Fatal("plain calls do not go directly to a record")
	}
	return s
}

// TestRecordGoesWhileItsModifierRuns overwrites all of the log's memory while a Modifier runs,
// with records that have the Modifier's old value. None of these may get the new value, and
// the new value must not be lost.
func TestRecordGoesWhileItsModifierRuns(t *testing.T) {
	const value = 5
	for name, rmw := range map[string]func(s *Session, key []byte, meanwhile func()) error{
		"slices": func(s *Session, key []byte, meanwhile func()) error {
			return s.RMW(key, func(u *Update) Verdict {
				u.New = binary.LittleEndian.AppendUint64(u.New, binary.LittleEndian.Uint64(u.Old)+1)
				meanwhile()
				return Put
			})
		},
		"word": func(s *Session, key []byte, meanwhile func()) error {
			return s.RMWWord(key, func(old uint64, _ bool) (uint64, Verdict) {
				meanwhile()
				return old + 1, Put
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := open(t, small(device.NewMemory(), 8, 8))
			other := st.NewSession()
			written := uint64(0)
			write := func(records uint64) {
				for end := written + records; written < end; written++ {
					if err := other.Upsert(key8(written), key8(value)); err != nil {
						t.Fatal(err)
					}
				}
			}
			write(100) // up to the second page; on the first, records have other offsets
			for round, outside := uint64(0), uint64(0); outside < 8; round++ {
				if round == 1000 {
					t.Fatal("the Modifier never runs outside an epoch")
				}
				key := key8(1<<40 + round)
				s, calls := directSession(t, st, key, key8(value)), 0
				if err := rmw(s, key, func() {
					// Inside an epoch, as in a second call or when the epoch has just changed, the
					// write would wait for this session.
					if calls++; calls == 1 && *(*uint64)(unsafe.Pointer(&s.handle)) == 0 {
						write(500 + 30*outside) // so that the tail is in different page frames
						outside++
					}
				}); err != nil {
					t.Fatal(err)
				}
				readBack(s.Read(key, nil)).Want(t, key8(value+1), "read")
				closeAll(t, s)
			}
			for n := range written {
				readBack(other.Read(key8(n), nil)).Want(t, key8(value), "another record, %d", n)
			}
			closeAll(t, other, st)
		})
	}
}

// grow recurses n times and then collects garbage.
func grow(n uint64) uint64 {
	var room [512]byte
	room[n%512] = 1
	if n == 0 {
		runtime.GC()
		return 0
	}
	return grow(n-1) + uint64(room[n%512])
}

// TestWordModifierMovesTheStack calls, in a direct plain call, a WordModifier that grows the
// stack, collects garbage, and panics.
func TestWordModifierMovesTheStack(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	key := key8(1 << 40)
	s := directSession(t, st, key, key8(0))
	const rounds, deep = 20, 200
	for range rounds {
		done := make(chan error)
		go func() { // with a small stack
			delta := new(uint64)
			*delta = deep
			done <- s.RMWWord(append([]byte(nil), key...), func(old uint64, _ bool) (uint64, Verdict) {
				return old + grow(*delta), Put
			})
		}()
		if err := testrun.Receive(t, "the update ends", done); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if !panicking(func() {
			_ = s.RMWWord(key, func(uint64, bool) (uint64, Verdict) { grow(deep); panic("modifier") })
		}) {
			t.Error("no panic")
		}
		if err := st.Commit(t.Context()); err != nil { // the epoch is free
			t.Fatal(err)
		}
	}
	readBack(s.Read(key, nil)).Want(t, key8(rounds*deep), "read")
	closeAll(t, s, st)
}

// TestWordCountersBesideEachOther increments the same counters in several sessions, by
// WordModifiers and by Modifiers, while their records are evicted and read again.
func TestWordCountersBesideEachOther(t *testing.T) {
	const sessions, rounds, counters = 4, 3000, 5
	st := open(t, small(device.NewMemory(), 8, 8))
	var wg sync.WaitGroup
	for i := range uint64(sessions) {
		wg.Go(func() {
			s := st.NewSession()
			defer closeAll(t, s)
			for n := range uint64(rounds) {
				err := s.RMWWord(key8(n%counters), addWord(1))
				if n%3 == 0 {
					err = errors.Join(err, s.RMW(key8(n%counters), add(1<<32)))
				}
				if n%50 == 0 {
					err = errors.Join(err, s.Upsert(key8(1<<40+i*rounds+n), key8(n)))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	s := st.NewSession()
	total := uint64(0)
	for n := range uint64(counters) {
		got, err := s.Read(key8(n), nil)
		if err != nil {
			t.Fatal(err)
		}
		total += binary.LittleEndian.Uint64(got)
	}
	if want := uint64(sessions * (rounds + rounds/3<<32)); total != want {
		t.Errorf("%x, want %x", total, want)
	}
	closeAll(t, s, st)
}
