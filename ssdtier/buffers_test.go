package ssdtier

import (
	"testing"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

func TestBufferPool(t *testing.T) {
	var p bufferPool
	const align = 4096
	for _, n := range []int{8193, 16 << 10, 100_000, maxPiece, maxPiece + 1} {
		var all []*buffer
		for range 5*mem.HugePage/max(n, 64<<10) + 3 { // several slabs of the larger ones
			b := p.get(n, align)
			if len(b.bytes) < n || uintptr(unsafe.Pointer(&b.bytes[0]))%align != 0 {
				t.Fatalf("for %d bytes: %d at %p", n, len(b.bytes), b.bytes)
			}
			if (b.slab == nil) != (n > maxPiece) {
				t.Errorf("for %d bytes: slab %v", n, b.slab)
			}
			for i := range b.bytes {
				b.bytes[i] = byte(len(all))
			}
			all = append(all, b)
		}
		for i, b := range all {
			for _, at := range []int{0, n / 2, len(b.bytes) - 1} {
				if b.bytes[at] != byte(i) {
					t.Fatalf("buffer %d of %d bytes holds what another was given", i, n)
				}
			}
			p.put(b)
		}
	}
	slabs := func() (n int) {
		for _, s := range p.slabs {
			n += len(s)
		}
		return n
	}
	for class, s := range p.slabs {
		if len(s) > spareSlabs {
			t.Errorf("%d slabs of buffers of %d bytes are kept", len(s), 1<<class)
		}
	}
	out := p.get(16<<10, align)
	if p.close(); slabs() != 1 {
		t.Errorf("%d slabs after the pool was closed, want the one with a buffer in use", slabs())
	}
	if p.put(out); slabs() != 0 {
		t.Errorf("%d slabs after the last buffer came back", slabs())
	}
	// A queue may return buffers after its device was closed.
	if p.put(p.get(16<<10, align)); slabs() != 0 {
		t.Errorf("%d slabs of a closed pool", slabs())
	}
}
