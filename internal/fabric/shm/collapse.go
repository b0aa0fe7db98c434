//go:build linux

package shm

import "golang.org/x/sys/unix"

// collapse populates memory, whole huge pages, with huge pages and reports whether all of it is
// huge. Others may access the memory meanwhile. It takes as long as zeroing the memory once.
func collapse(b []byte) bool {
	for ; len(b) >= hugePage; b = b[hugePage:] {
		// Only populated pages can be collapsed.
		if unix.Madvise(b[:1], unix.MADV_POPULATE_WRITE) != nil || unix.Madvise(b[:hugePage], unix.MADV_COLLAPSE) != nil {
			return false
		}
	}
	return true
}
