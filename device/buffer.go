package device

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/internal/queue"
)

// AlignedBuffer returns size zeroed bytes whose address is a multiple of align, a power of
// two, for a device with that Alignment.
func AlignedBuffer(size, align int) []byte {
	if align <= 1 {
		return make([]byte, size)
	}
	raw := make([]byte, size+align-1)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))) & (align - 1)
	return raw[skip : skip+size : skip+size]
}

// checkRange returns an error if n bytes at addr are not a valid range of a log.
func checkRange(n int, addr int64) error {
	if addr < 0 || addr+int64(n) < addr {
		return fmt.Errorf("device: %d bytes at address %d: out of range", n, addr)
	}
	return nil
}

// checkDepth returns an error if depth is not a valid queue depth.
func checkDepth(depth int) error {
	if depth < 1 || depth > queue.MaxDepth {
		return fmt.Errorf("device: queue depth %d, want 1 to %d", depth, queue.MaxDepth)
	}
	return nil
}

// raise raises v to at least to.
func raise(v *atomic.Int64, to int64) {
	for {
		old := v.Load()
		if old >= to || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// aligned reports whether b begins at a multiple of align.
func aligned(b []byte, align int) bool {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))))&(align-1) == 0
}
