//go:build linux

package shm

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Both sides' mappings of a large region are aligned for huge pages, show the same bytes, and
// are unmapped completely.
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
		if err := unmap(peer); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Requesting huge pages, whether or not the machine has any, does not affect other threads'
// memory, even if that is new.
func TestHugePagesBesideOtherMemory(t *testing.T) {
	var done atomic.Bool
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for !done.Load() {
				b, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
				if err != nil {
					t.Error(err)
					return
				}
				for i := 0; i < len(b); i += 4096 {
					b[i] = 1 // a fault if it is not mapped
				}
				if err := unix.Munmap(b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 10_000 {
		s, err := mapNew("redykv-test", hugePage, unix.MFD_HUGETLB)
		if err != nil {
			continue // the machine has none
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	done.Store(true)
	others.Wait()
}
