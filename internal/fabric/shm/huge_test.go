package shm

import (
	"bytes"
	"testing"
	"unsafe"
)

// Both sides' mappings of a large region are aligned for huge pages, are of the same
// bytes, and go as a whole.
func TestLargeRegion(t *testing.T) {
	for _, size := range []int{hugePage, hugePage + 4096, 3*hugePage + 12345} {
		s, err := newShared("redykv-test", size)
		if err != nil {
			t.Fatal(err)
		}
		peer, err := mapPeer(s.file, int64(size), protReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(s.data, make([]byte, len(s.data))) {
			t.Errorf("%d bytes are not all zero", size)
		}
		for i := range size {
			s.data[i] = byte(i / 4096)
		}
		for _, b := range [][]byte{s.data, peer} {
			if len(b) < size || uintptr(unsafe.Pointer(&b[0]))%hugePage != 0 {
				t.Errorf("%d bytes for %d at %p", len(b), size, &b[0])
			}
		}
		if !bytes.Equal(s.data[:size], peer[:size]) {
			t.Errorf("the peer sees other bytes, of %d", size)
		}
		t.Logf("%d bytes, in huge pages: %v", size, s.huge)
		if err := unmap(peer); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What the machine cannot spare is not taken ahead.
func TestHugeRegionIsLazy(t *testing.T) {
	s, err := newShared("redykv-test", 1<<44)
	if err != nil {
		t.Skip("no address space for it: ", err)
	}
	if s.huge {
		t.Error("16 TiB in huge pages")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
