//go:build linux

package shm

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/mem"
)

// Huge pages for memory files. Where the administrator has set none aside, the
// kernel gives none to a page that is touched first; but it collapses pages of a
// file into a huge one when it is asked to, if mappings are aligned for that. A
// random access to a small page costs three of one to a huge page.

// mapFile maps size bytes of a file, aligned to huge pages where they fill one.
func mapFile(fd, size, prot int) ([]byte, error) {
	var st unix.Stat_t
	if size < hugePage || unix.Fstat(fd, &st) == nil && st.Blksize >= hugePage {
		return mapAt(fd, nil, size, prot, 0) // the kernel aligns a file of huge pages itself
	}
	page := os.Getpagesize()
	whole := (size + page - 1) &^ (page - 1)
	reserved, err := unix.MmapPtr(-1, 0, nil, uintptr(whole+hugePage), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve addresses: %w", err)
	}
	before := -int(uintptr(reserved)) & (hugePage - 1)
	at := unsafe.Add(reserved, before)
	b, err := mapAt(fd, at, size, prot, unix.MAP_FIXED)
	if before > 0 {
		_ = unix.MunmapPtr(reserved, uintptr(before))
	}
	_ = unix.MunmapPtr(unsafe.Add(at, whole), uintptr(hugePage-before))
	// If the file was not mapped, what was reserved for it is left alone: the kernel
	// may have taken it away already, and another thread have got the addresses.
	return b, err
}

func mapAt(fd int, at unsafe.Pointer, size, prot, flags int) ([]byte, error) {
	p, err := unix.MmapPtr(fd, 0, at, uintptr(size), prot, unix.MAP_SHARED|flags)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return unsafe.Slice((*byte)(p), size), nil
}

// unmap takes back what mapFile returned, whole.
func unmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}

// enterHuge reads a word of each huge page of a new mapping of a file that is all
// there, so that its users need not fault it in: whoever imports a region does so
// beside them, mostly. Where pages are small, it does little.
func enterHuge(b []byte) {
	for ; len(b) >= hugePage; b = b[hugePage:] {
		atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b))))
	}
}

// collapse puts physical memory behind new memory, in huge pages, and says whether
// all that fill one are. It takes the time that zeroing the memory takes, once. It
// does nothing about more than half of what the machine has to spare, which comes
// page by page as it is touched.
func collapse(b []byte) bool {
	if int64(len(b)) > mem.Available()/2 {
		return false
	}
	for ; len(b) >= hugePage; b = b[hugePage:] {
		// There has to be something to collapse.
		if unix.Madvise(b[:1], unix.MADV_POPULATE_WRITE) != nil || unix.Madvise(b[:hugePage], unix.MADV_COLLAPSE) != nil {
			return false
		}
	}
	return true
}
