package mem

import (
	"fmt"
	"math/bits"
)

// HugePage is the size of a huge page, and the alignment of memory in huge pages.
const HugePage = 2 << 20

// maxAlloc keeps sizes within the address space of every platform, so that arithmetic on them
// does not overflow.
const maxAlloc = 1 << 46

// Alloc returns size bytes of zeroed memory, aligned to the largest power of two that is
// at most size, but at least to 4096 and at most to HugePage. Physical memory is allocated
// when a page is first touched.
func Alloc(size int) ([]byte, error) {
	if size <= 0 || size > maxAlloc {
		return nil, fmt.Errorf("mem: allocate %d bytes: want 1 to %d", size, int64(maxAlloc))
	}
	b, err := alloc(size)
	if err != nil {
		return nil, fmt.Errorf("mem: allocate %d bytes: %w", size, err)
	}
	return b, nil
}

// alignmentOf is the alignment of an allocation of size bytes.
func alignmentOf(size int) int {
	return min(max(1<<(bits.Len(uint(size))-1), 4096), HugePage)
}

// Free releases memory that Alloc returned. b is the whole slice and must not be used
// afterwards.
func Free(b []byte) error { return free(b) }

// Discard releases the physical memory of b, which reads as zeros afterwards. b is a part of
// an allocation, aligned to the system's pages at both ends.
func Discard(b []byte) error { return discard(b) }

// SmallPages makes the physical memory of b, which Alloc returned, come in small pages, so that
// few written bytes take little memory.
func SmallPages(b []byte) { smallPages(b) }

// Populate allocates the physical memory of b, which begins at a page, at half the cost of
// writing to each page. It is advice: where it fails or does nothing, pages are allocated when
// touched.
func Populate(b []byte) { populate(b) }

// ResidentOf returns the number of bytes of b, allocated by Alloc, that have physical memory;
// -1 if unknown.
func ResidentOf(b []byte) (int64, error) { return residentOf(b) }

// NextData returns the first range of b at or behind from that may hold other bytes than zeros,
// in whole pages as far as b goes. Without such a range both ends are the length of b. It reads
// none of the bytes. Where the system does not tell, the range is all of the rest.
func NextData(b []byte, from int) (begin, end int) {
	if from >= len(b) {
		return len(b), len(b)
	}
	return nextData(b, from)
}
