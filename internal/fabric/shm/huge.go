//go:build linux

package shm

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Huge pages for memory files. Unless the administrator has reserved some, the kernel uses
// small pages on first touch; but it collapses a file's pages into huge ones on request, if
// mappings are aligned. A random access to a small page costs three times one to a huge page.

// mapFile maps size bytes of a file, aligned to huge pages if size is at least one.
func mapFile(fd, size, prot int) ([]byte, error) {
	var st unix.Stat_t
	if size < hugePage || unix.Fstat(fd, &st) == nil && st.Blksize >= hugePage {
		return mapAt(fd, nil, size, prot, 0) // the kernel aligns files of huge pages
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
	// If mapping the file failed, the reservation is not unmapped: the kernel may have
	// removed it already and given the addresses to another thread.
	return b, err
}

func mapAt(fd int, at unsafe.Pointer, size, prot, flags int) ([]byte, error) {
	p, err := unix.MmapPtr(fd, 0, at, uintptr(size), prot, unix.MAP_SHARED|flags)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return unsafe.Slice((*byte)(p), size), nil
}

// unmap removes a mapping that mapFile returned.
func unmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}

// enterHuge reads a word of each huge page of a new mapping, so that its users do not fault
// the pages in. With small pages it has little effect.
func enterHuge(b []byte) {
	for ; len(b) >= hugePage; b = b[hugePage:] {
		atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b))))
	}
}
