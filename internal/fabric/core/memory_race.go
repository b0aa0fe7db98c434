//go:build race

package core

import "golang.org/x/sys/unix"

// Under the race detector package mem allocates on the Go heap, so that accesses are checked.
// Region memory must not be on the heap: one-sided accesses are ordered by messages of the
// peers, which the detector does not see, so it would report all of them.

func allocate(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

func discard(b []byte) error { return unix.Madvise(b, unix.MADV_DONTNEED) }

func release(b []byte) error { return unix.Munmap(b) }
