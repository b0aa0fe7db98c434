package kv

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
)

// TestModifierThatLeavesOtherMemory sets Update.New to memory that the Modifier does not own:
// the old value, and a slice that it keeps. Later operations must not change these slices.
func TestModifierThatLeavesOtherMemory(t *testing.T) {
	st := open(t, small(device.NewMemory(), 0, 0))
	s := st.NewSession()
	key := []byte("key")
	write := func() {
		t.Helper()
		if err := s.Upsert(key, []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	touch := func(u *Update) Verdict {
		u.New = u.Old
		u.Expires = 1 << 60 // so that the record is copied
		return Put
	}
	shout := func(u *Update) Verdict {
		u.New = append(append(u.New, "!!!"...), u.Old...)
		return Put
	}
	kept := []byte("kept")
	keep := func(u *Update) Verdict {
		u.New = kept[:2]
		return Put
	}
	for _, cold := range []bool{false, true} {
		for _, tc := range []struct {
			modify []Modifier
			want   string
		}{
			{[]Modifier{touch, shout}, "!!!value"},
			{[]Modifier{keep, shout}, "!!!ke"},
			{[]Modifier{touch, touch, shout, shout}, "!!!!!!value"},
		} {
			write()
			for n := uint64(0); cold && n < 1000; n++ {
				if err := s.Upsert(key8(n), key8(n)); err != nil {
					t.Fatal(err)
				}
			}
			for _, modify := range tc.modify {
				if err := s.RMW(key, modify); err != nil {
					t.Fatal(err)
				}
			}
			readBack(s.Read(key, nil)).Want(t, []byte(tc.want), "cold %v", cold)
			if string(kept) != "kept" {
				t.Fatalf("the Modifier's memory was written to: %q", kept)
			}
		}
	}
	closeAll(t, s, st)
}

// TestInsertHasNoFormInPlace inserts with an Op whose InPlace is set.
func TestInsertHasNoFormInPlace(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 16))
	s := st.NewSession()
	old, fresh := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)
	if err := s.Upsert(key8(1), old); err != nil {
		t.Fatal(err)
	}
	op := Op{Kind: OpInsert, Key: key8(1), Value: fresh, InPlace: func(value []byte) ([]byte, bool) {
		value[0] = 9
		return value, true
	}}
	if err := s.Run(&op); !errors.Is(err, ErrExists) {
		t.Errorf("inserted over a record: %v", err)
	}
	readBack(s.Read(key8(1), nil)).Want(t, old, "read")
	closeAll(t, s, st)
}

// TestInPlaceBeyondItsCapacity appends in place beyond the capacity.
func TestInPlaceBeyondItsCapacity(t *testing.T) {
	st := open(t, small(device.NewMemory(), 0, 0))
	s := st.NewSession()
	key, want := []byte("key"), []byte(nil)
	for range 40 {
		err := s.Run(&Op{
			Kind: OpRMW, Key: key,
			InPlace: func(value []byte) ([]byte, bool) { return append(value, "abc"...), true },
			Modify: func(u *Update) Verdict {
				u.New = append(append(u.New, u.Old...), "abc"...)
				return Put
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, "abc"...)
		readBack(s.Read(key, nil)).Want(t, want, "read")
	}
	closeAll(t, s, st)
}

// TestNoFormInPlaceOfAWord changes values of 8 bytes, with and without an expiry. InPlace is
// not called for them.
func TestNoFormInPlaceOfAWord(t *testing.T) {
	st := open(t, small(device.NewMemory(), 8, 8))
	s := st.NewSession()
	for n, expires := range []int64{0, 1 << 60} {
		if err := s.Run(&Op{Kind: OpUpsert, Key: key8(uint64(n)), Value: key8(1), Expires: expires}); err != nil {
			t.Fatal(err)
		}
		err := s.Run(&Op{
			Kind: OpRMW, Key: key8(uint64(n)), Modify: add(1),
			InPlace: func(value []byte) ([]byte, bool) {
				t.Error("asked")
				return value, true
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		readBack(s.Read(key8(uint64(n)), nil)).Want(t, key8(2), "read")
	}
	closeAll(t, s, st)
}

// editsThatSayNo fill the value with b before they return false, against InPlace's rules.
var editsThatSayNo = map[string]func(b byte) InPlace{
	"false": func(b byte) InPlace {
		return func(value []byte) ([]byte, bool) { return paint(value, b), false }
	},
	"append": func(b byte) InPlace {
		return func(value []byte) ([]byte, bool) {
			return append(paint(value, b), make([]byte, cap(value))...), true
		}
	},
	"panic": func(b byte) InPlace {
		return func(value []byte) ([]byte, bool) {
			paint(value, b)
			panic("no")
		}
	},
}

func paint(value []byte, b byte) []byte {
	for i := range value {
		value[i] = b
	}
	return value
}

// runAnyhow runs an operation that may panic.
func runAnyhow(t *testing.T, s *Session, op *Op) {
	defer func() {
		if p := recover(); p != nil && p != "no" {
			panic(p)
		}
	}()
	if err := s.Run(op); err != nil {
		t.Error(err)
	}
}

// TestReaderAcrossAnEditThatSaysNo makes the steps of a read one by one: half the value is
// copied, an edit changes the value and returns false, and the other half is copied. The
// reader must detect the change by the header.
func TestReaderAcrossAnEditThatSaysNo(t *testing.T) {
	for name, edit := range editsThatSayNo {
		for _, sizes := range [][2]int{{0, 0}, {8, 64}} {
			st := open(t, small(device.NewMemory(), sizes[0], sizes[1]))
			s := st.NewSession()
			if err := s.Upsert(key8(1), make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			read := func() ([]byte, uint64) {
				s.enter()
				defer s.leave()
				_, e := s.view.index.Find(s.hash(key8(1)))
				value, h, _ := s.layout.Read(nil, s.view.record(e.Address()))
				return value, uint64(h)
			}
			first, before := read()
			runAnyhow(t, s, &Op{
				Kind: OpRMW, Key: key8(1), InPlace: edit(1), Modify: func(*Update) Verdict { return Keep },
			})
			second, after := read()
			if value := append(first[:32:32], second[32:]...); before == after {
				t.Errorf("%s, %v: a reader takes %x for the value", name, sizes, value)
			}
			if !bytes.Equal(second, bytes.Repeat([]byte{1}, 64)) {
				t.Errorf("%s, %v: what the edit changed is not there: %x", name, sizes, second)
			}
			closeAll(t, s, st)
		}
	}
}

// TestNoTornReadsOfEditsThatSayNo reads a value while edits fill it and return false. All
// bytes of each value read are the same.
func TestNoTornReadsOfEditsThatSayNo(t *testing.T) {
	for name, edit := range editsThatSayNo {
		edits, size := testrun.Raced(4000, 400), 16<<10
		st := open(t, Options{Device: device.NewMemory(), Memory: 512 << 10, PageSize: 64 << 10, Records: 64})
		if err := st.Upsert(context.Background(), key8(1), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		whole := func(value []byte) bool { return bytes.Count(value, value[:1]) == size }
		var done atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			defer done.Store(true)
			s := st.NewSession()
			defer closeAll(t, s)
			for n := range edits {
				asked := false
				inPlace := edit(byte(n))
				runAnyhow(t, s, &Op{
					Kind: OpRMW, Key: key8(1),
					InPlace: func(value []byte) ([]byte, bool) {
						asked = true
						return inPlace(value)
					},
					Modify: func(u *Update) Verdict {
						if !whole(u.Old) {
							t.Errorf("%s: a Modifier was given a torn value", name)
						}
						if asked {
							return Keep
						}
						u.New = append(u.New, u.Old...) // the record had no versions left
						return Put
					},
				})
			}
		})
		wg.Go(func() {
			s := st.NewSession()
			defer closeAll(t, s)
			for torn, buf := 0, []byte(nil); !done.Load() && torn == 0; {
				var err error
				if buf, err = s.Read(key8(1), buf[:0]); err != nil || !whole(buf) {
					t.Errorf("%s: torn value, or %v", name, err)
					torn++
				}
			}
		})
		wg.Wait()
		closeAll(t, st)
	}
}

// TestForgottenVerdict returns the zero verdict from Modifiers, in each kind of change.
// Nothing is stored.
func TestForgottenVerdict(t *testing.T) {
	for name, size := range map[string]int{"words": 8, "variable": 0} {
		t.Run(name, func(t *testing.T) {
			st := open(t, Options{Device: device.NewMemory(), KeySize: size, ValueSize: size})
			s := st.NewSession()
			forgets := func(u *Update) (v Verdict) { u.New = append(u.New, key8(9)...); return }
			forgetsWord := func(uint64, bool) (fresh uint64, v Verdict) { return 9, v }
			for n := range uint64(2) { // the first key has no record, the second has one
				key := key8(n)
				if n == 1 {
					if err := s.Upsert(key, key); err != nil {
						t.Fatal(err)
					}
				}
				ops := make([]Op, 2*laneSize)
				for i := range ops {
					ops[i] = Op{Kind: OpRMW, Key: key, Modify: forgets}
					if i%2 == 1 {
						ops[i] = Op{Kind: OpRMW, Key: key, ModifyWord: forgetsWord}
					}
				}
				err := errors.Join(s.RMW(key, forgets), s.RMWWord(key, forgetsWord), s.Do(context.Background(), ops))
				value, found := s.Read(key, nil)
				if err != nil || n == 0 && !errors.Is(found, ErrNotFound) || n == 1 && !bytes.Equal(value, key) {
					t.Errorf("key %d: %x, %v, %v", n, value, found, err)
				}
			}
			closeAll(t, s, st)
		})
	}
}

// A read-modify-write that waits for space for its record leaves the present one to others.
func TestRMWWaitsForSpaceUnsealed(t *testing.T) {
	dev := device.NewFaulty(device.NewMemory(), device.FaultyOptions{Stuck: 1})
	st := open(t, small(dev, 8, 8))
	size := st.log.Layout().Size(8, 8, false)
	last := uint64(0)
	for ; st.log.Tail()+int64(size) <= 4<<10; last++ { // all that memory holds
		if err := st.Upsert(t.Context(), key8(last), key8(1)); err != nil {
			t.Fatal(err)
		}
	}
	last--
	s := st.NewSession()
	var calls atomic.Int64
	done := make(chan error, 1)
	go func() {
		done <- s.RMW(key8(last), func(u *Update) Verdict {
			u.New, u.Expires = append(u.New, u.Old...), 1<<60
			calls.Add(1)
			return Put
		})
	}()
	testrun.Until(t, "the record is to be replaced", func() bool { return calls.Load() == 3 })
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(testrun.Bound))
	defer cancel()
	if err := st.Run(ctx, &Op{Kind: OpRMW, Key: key8(last), Modify: add(1)}); err != nil {
		t.Errorf("an update in place: %v", err)
	}
	dev.Set(device.FaultyOptions{})
	dev.Release()
	if err := testrun.Receive(t, "the read-modify-write", done); err != nil {
		t.Error(err)
	}
	closeAll(t, s, st)
}
