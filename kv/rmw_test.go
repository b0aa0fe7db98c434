package kv

import (
	"bytes"
	"errors"
	"testing"

	"github.com/redykv/redykv/device"
)

// TestModifierThatLeavesOtherMemory has Modifiers put slices into Update.New that
// are not theirs to give: the old value, and one that they keep. What later
// operations make of their own values must not show in these.
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
		u.Expires = 1 << 60 // which has it copied
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
			if got, err := s.Read(key, nil); err != nil || string(got) != tc.want {
				t.Errorf("cold %v: %q, %v, want %q", cold, got, err, tc.want)
			}
			if string(kept) != "kept" {
				t.Fatalf("the Modifier's memory was written to: %q", kept)
			}
		}
	}
	closeAll(t, s, st)
}

// TestInsertHasNoFormInPlace inserts with an Op that was an RMW before.
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
	if got, err := s.Read(key8(1), nil); err != nil || !bytes.Equal(got, old) {
		t.Errorf("%x, %v", got, err)
	}
	closeAll(t, s, st)
}

// TestInPlaceBeyondItsCapacity appends in place until there is no space, without
// looking.
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
		if got, err := s.Read(key, nil); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
	closeAll(t, s, st)
}

// TestNoFormInPlaceOfAWord changes words, with and without an expiry, as
// InPlace says that it is not asked about.
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
		if got, err := s.Read(key8(uint64(n)), nil); err != nil || !bytes.Equal(got, key8(2)) {
			t.Errorf("%x, %v", got, err)
		}
	}
	closeAll(t, s, st)
}
