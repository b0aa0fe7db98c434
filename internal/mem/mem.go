// Package mem allocates large zeroed memory outside the Go heap, in huge pages
// where the kernel gives them, so that the garbage collector never looks at it
// and the processor's address translation is cheap.
//
// Under the race detector, and where there is no mmap, the memory comes from
// the Go heap: the detector follows accesses only there.
package mem

import (
	"fmt"
	"math/bits"
)

// HugePage is the size of a huge page, and the alignment of memory that can be
// made of them.
const HugePage = 2 << 20

// maxAlloc keeps sizes within what addresses can name on every platform, so that
// no arithmetic on them overflows.
const maxAlloc = 1 << 46

// Alloc returns size bytes of zeroed memory, aligned to the largest power of two that is
// at most size, but for 4096 at least and HugePage at most. Physical memory is taken as it
// is touched.
func Alloc(size int) ([]byte, error) {
	if size <= 0 || size > maxAlloc {
		return nil, fmt.Errorf("mem: allocating %d bytes", size)
	}
	b, err := alloc(size)
	if err != nil {
		return nil, fmt.Errorf("mem: allocating %d bytes: %w", size, err)
	}
	return b, nil
}

// alignmentOf is what memory of a size is aligned to.
func alignmentOf(size int) int {
	return min(max(1<<(bits.Len(uint(size))-1), 4096), HugePage)
}

// Free returns memory that came from Alloc, whole. Nothing may use it any more.
func Free(b []byte) error { return free(b) }

// Discard gives the physical memory behind b back; b reads as zeros afterwards.
// b is part of what Alloc returned, aligned to the system's pages at both ends.
func Discard(b []byte) error { return discard(b) }
