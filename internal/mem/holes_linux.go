package mem

import (
	"encoding/binary"
	"os"
	"unsafe"
)

// pageHasData are the bits of a page in /proc/self/pagemap that is present or swapped out. A
// page with neither reads as zeros.
const pageHasData = 3 << 62

func nextData(b []byte, from int) (begin, end int) {
	f, err := os.Open("/proc/self/pagemap") // 8 bytes for each page
	if err != nil {
		return from, len(b)
	}
	defer func() { _ = f.Close() }() // it was only read
	size := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	first, last := (start+uintptr(from))/size, (start+uintptr(len(b))-1)/size
	at := func(page uintptr) int { return min(max(int(page*size)-int(start), from), len(b)) }
	begin = -1
	entries := make([]byte, 8*min(1<<13, last-first+1))
	for page := first; page <= last; {
		n := min(uintptr(len(entries)/8), last-page+1)
		if _, err := f.ReadAt(entries[:8*n], int64(8*page)); err != nil {
			return from, len(b)
		}
		for i := range n {
			switch data := binary.NativeEndian.Uint64(entries[8*i:])&pageHasData != 0; {
			case data && begin < 0:
				begin = at(page + i)
			case !data && begin >= 0:
				return begin, at(page + i)
			}
		}
		page += n
	}
	if begin < 0 {
		begin = len(b)
	}
	return begin, len(b)
}
