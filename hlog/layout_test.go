package hlog

import (
	"bytes"
	"testing"
	"unsafe"
)

// memoryRecord returns space for a record of up to n bytes.
func memoryRecord(n int) (Record, []byte) {
	words := make([]uint64, (n+7)/8)
	return Record{unsafe.Pointer(&words[0])}, unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
}

func TestHeaderBits(t *testing.T) {
	h := NewHeader(MaxAddress-8, true)
	if h.Previous() != MaxAddress-8 || !h.Used() || !h.Tombstone() || h.Sealed() || h.Locked() || h.Invalid() {
		t.Errorf("NewHeader: %#x", uint64(h))
	}
	versions := 0
	for h := NewHeader(64, false); !h.Exhausted(); h += versionUnit {
		versions++
		if h.Previous() != 64 || h.Locked() || !h.Used() {
			t.Fatalf("version %d spills: %#x", versions, uint64(h))
		}
	}
	if versions != 1<<9-1 {
		t.Errorf("%d versions, want %d", versions, 1<<9-1)
	}
	var all Header
	for _, bits := range []Header{addressMask, versionMask, headerLocked, headerSealed, headerTombstone, headerInvalid, headerExpires, headerUsed} {
		if all&bits != 0 {
			t.Errorf("%#x overlaps the others", uint64(bits))
		}
		all |= bits
	}
}

func TestLengthsBits(t *testing.T) {
	if n := newLengths(MaxKeySize, MaxValueSize, pad(MaxValueSize)); n.key() != MaxKeySize ||
		n.value() != MaxValueSize || n.space() != pad(MaxValueSize) {
		t.Errorf("lengths: %d, %d, %d", n.key(), n.value(), n.space())
	}
}

func TestRecordSizes(t *testing.T) {
	for _, tc := range []struct {
		layout     Layout
		key, value int
		want       int
	}{
		{FixedLayout(8, 8), 8, 8, 24},
		{FixedLayout(8, 1024), 8, 1024, 1040},
		{FixedLayout(5, 3), 5, 3, 24},
		{VariableLayout(), 8, 8, 32},
		{VariableLayout(), 1, 0, 24},
		{VariableLayout(), 13, 100, 136},
	} {
		if got := tc.layout.Size(tc.key, tc.value, false); got != tc.want {
			t.Errorf("Size(%d, %d) = %d, want %d", tc.key, tc.value, got, tc.want)
		}
	}
}

func TestRecordRoundTrip(t *testing.T) {
	key, value := []byte("a key of 19 bytes.."), []byte("and a value of 23 bytes")
	for _, layout := range []Layout{FixedLayout(len(key), len(value)), VariableLayout()} {
		size := layout.Size(len(key), len(value), false)
		r, b := memoryRecord(size)
		layout.Fill(r, NewHeader(4096, false), key, value, 0)
		got, h, _ := layout.Read(nil, r)
		if !bytes.Equal(got, value) || h.Previous() != 4096 || !layout.KeyEqual(r, key) {
			t.Errorf("in memory: %q under %#x", got, uint64(h))
		}
		im, need, err := layout.Decode(b)
		if err != nil || need != size || !bytes.Equal(im.Key, key) || !bytes.Equal(im.Value, value) || im.Header != h {
			t.Errorf("decoded: %+v, need %d, %v", im, need, err)
		}
		for cut := range b { // a truncated record reports how many bytes it needs
			if im, need, err := layout.Decode(b[:cut]); err != nil || need <= cut || im.Key != nil {
				t.Errorf("decoding %d of %d bytes: need %d, key %q, %v", cut, size, need, im.Key, err)
			}
		}
	}
}

func TestUpdateInPlace(t *testing.T) {
	layout := VariableLayout()
	r, _ := memoryRecord(layout.Size(1, 16, false))
	layout.Fill(r, NewHeader(64, false), []byte("k"), []byte("0123456789"), 0)
	update := func(value string) bool {
		h, ok := r.Lock()
		if !ok {
			t.Fatal("not lockable")
		}
		if r.LockIf(h) || r.LockIf(h|headerLocked) {
			t.Fatal("locked twice")
		}
		if !layout.Store(r, []byte(value), 0) {
			r.UnlockUnchanged(h)
			return false
		}
		r.Unlock(h)
		return true
	}
	for value, fits := range map[string]bool{"": true, "short": true, "0123456789abcdef": true, "0123456789abcdefg": false} {
		before, _, _ := layout.Read(nil, r)
		if update(value) != fits {
			t.Fatalf("storing %q in 16 bytes: want fits = %v", value, fits)
		}
		if fits {
			before = []byte(value)
		}
		if got, _, _ := layout.Read(nil, r); !bytes.Equal(got, before) {
			t.Errorf("after storing %q: %q, want %q", value, got, before)
		}
	}
	for n := 0; !r.Header().Exhausted(); n++ {
		if n > 1<<9 {
			t.Fatal("versions never end")
		}
		update("x")
	}
	if _, ok := r.Lock(); ok {
		t.Error("a record without versions left was locked: its next reader could miss an update")
	}
}

func TestSealedAndBuriedRecordsStayAsTheyAre(t *testing.T) {
	layout := FixedLayout(8, 16)
	fresh := func() Record {
		r, _ := memoryRecord(32)
		layout.Fill(r, NewHeader(64, false), make([]byte, 8), make([]byte, 16), 0)
		return r
	}
	sealed := fresh()
	h := sealed.Header()
	if !sealed.LockIf(h) {
		t.Fatal("a fresh record cannot be locked")
	}
	sealed.UnlockSealed(h)
	if sealed.LockIf(sealed.Header()) || sealed.Bury() {
		t.Error("a sealed record was changed")
	}
	sealed.UnlockUnchanged(h)
	if _, ok := sealed.Lock(); !ok {
		t.Error("an unsealed record cannot be locked")
	}
	buried := fresh()
	if !buried.Bury() || buried.Bury() || !buried.Header().Tombstone() {
		t.Error("Bury")
	}
	if _, ok := buried.Lock(); ok {
		t.Error("a tombstone was locked")
	}
}

func FuzzDecode(f *testing.F) {
	for _, layout := range []Layout{FixedLayout(8, 8), VariableLayout()} {
		r, b := memoryRecord(layout.Size(8, 8, false))
		layout.Fill(r, NewHeader(64, false), make([]byte, 8), make([]byte, 8), 0)
		f.Add(layout.Fixed(), bytes.Clone(b))
		r, b = memoryRecord(layout.Size(8, 8, true))
		layout.Fill(r, NewHeader(64, false), make([]byte, 8), make([]byte, 8), 1)
		f.Add(layout.Fixed(), bytes.Clone(b))
	}
	f.Fuzz(func(t *testing.T, fixed bool, b []byte) {
		layout := VariableLayout()
		if fixed {
			layout = FixedLayout(8, 8)
		}
		im, need, err := layout.Decode(b)
		switch {
		case err != nil || need > len(b):
			if im.Key != nil || im.Value != nil {
				t.Errorf("a key or value from what cannot be a record")
			}
		case need > len(b) || need < len(im.Key)+len(im.Value):
			t.Errorf("a record of %d+%d bytes in %d of %d", len(im.Key), len(im.Value), need, len(b))
		case layout.Fixed() && need != layout.Size(len(im.Key), len(im.Value), im.Header.Expires()):
			t.Errorf("a record of %d+%d bytes takes %d", len(im.Key), len(im.Value), need)
		}
	})
}
