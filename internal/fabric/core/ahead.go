package core

import (
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

// Ahead is the number of operations for which memory is prefetched. A batch of small
// operations waits for cache lines from memory; prefetching loads this many at once. More
// gained nothing.
const Ahead = 16

// line is the size of a cache line in bytes.
const line = 64

// Touch prefetches the first lines of the n bytes at offset of b, if they are inside b.
// The processor prefetches the following ones.
func Touch(b []byte, offset int64, n int) {
	if uint64(offset) >= uint64(len(b)) {
		return
	}
	p := unsafe.Pointer(&b[offset])
	mem.Prefetch(p)
	if last := min(offset+int64(n), int64(len(b))) - 1; last&^(line-1) > offset {
		mem.Prefetch(unsafe.Pointer(&b[min(offset+line, last)]))
	}
}
