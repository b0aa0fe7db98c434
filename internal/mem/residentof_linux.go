//go:build linux && !race

package mem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ResidentOf returns the number of bytes of b, allocated by Alloc, that have physical memory;
// -1 if unknown.
func ResidentOf(b []byte) (int64, error) {
	const page = 4096
	if len(b) == 0 {
		return 0, nil
	}
	pages := make([]byte, (len(b)+page-1)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
	if errno != 0 {
		return 0, fmt.Errorf("mem: asking for resident pages of %d bytes: %w", len(b), errno)
	}
	n := int64(0)
	for _, p := range pages {
		n += int64(p & 1)
	}
	return n * page, nil
}
