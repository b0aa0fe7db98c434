//go:build !race

package mem

import "golang.org/x/sys/unix"

// Populate puts physical memory behind b, which begins at a page, as writing to
// each page would, at half the cost. It is advice: where it cannot be had, pages
// come as they are touched.
func Populate(b []byte) {
	if len(b) > 0 {
		_ = unix.Madvise(b, unix.MADV_POPULATE_WRITE)
	}
}
