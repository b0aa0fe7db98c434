package kv

import (
	"testing"

	"github.com/redykv/redykv/device"
)

// TestIndexMemory compares the arithmetic with what an index has.
func TestIndexMemory(t *testing.T) {
	for _, records := range []int64{0, 1, 20_000, 160_000, 163_840, 200_000, 327_680} {
		st := open(t, Options{Device: device.NewNull(), KeySize: 8, ValueSize: 8, Records: max(records, 1), Memory: 16 << 20})
		s := st.NewSession()
		for n := range uint64(records) {
			if err := s.Upsert(key8(n), key8(n)); err != nil {
				t.Fatal(err)
			}
		}
		got, want := IndexMemory(records), st.Metrics().Index.Bytes
		if got < want-want/50 || got > want+want/50 {
			t.Errorf("%d records: %d bytes by arithmetic, the index has %d", records, got, want)
		}
		closeAll(t, s, st)
	}
	if n := IndexMemory(1 << 62); n <= 0 {
		t.Errorf("of endless records %d bytes", n)
	}
}
