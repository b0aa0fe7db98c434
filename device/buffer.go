package device

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// AlignedBuffer returns size zeroed bytes whose address is a multiple of align,
// a power of two: what a device with that Alignment can write.
func AlignedBuffer(size, align int) []byte {
	if align <= 1 {
		return make([]byte, size)
	}
	raw := make([]byte, size+align-1)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))) & (align - 1)
	return raw[skip : skip+size : skip+size]
}

// checkRange refuses ranges of addresses that no log can have: those below zero
// and those whose end is no int64.
func checkRange(n int, addr int64) error {
	if addr < 0 || addr+int64(n) < addr {
		return fmt.Errorf("device: %d bytes at address %d: out of range", n, addr)
	}
	return nil
}

// checkDepth refuses depths of queues that would be a mistake to allocate.
func checkDepth(depth int) error {
	if depth < 1 || depth > maxDepth {
		return fmt.Errorf("device: queue depth %d, want 1 to %d", depth, maxDepth)
	}
	return nil
}

// maxDepth is the most operations under way that one queue can be made for.
const maxDepth = 1 << 16

// raise moves v up to at least to, and never down.
func raise(v *atomic.Int64, to int64) {
	for {
		old := v.Load()
		if old >= to || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// aligned says whether b begins at a multiple of align.
func aligned(b []byte, align int) bool {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))))&(align-1) == 0
}
