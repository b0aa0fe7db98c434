//go:build linux && !race

package mem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

func alloc(size int) ([]byte, error) {
	// mmap aligns to the system's pages only. For a larger alignment, map more and unmap the
	// excess on both sides.
	page := unix.Getpagesize()
	slack := alignmentOf(size)
	if slack <= page {
		slack = 0
	}
	huge := size >= HugePage
	size = (size + page - 1) &^ (page - 1)
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size+slack), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	if slack > 0 {
		before := (slack - int(uintptr(p)%uintptr(slack))) % slack
		if before > 0 {
			if err := unix.MunmapPtr(p, uintptr(before)); err != nil {
				return nil, err
			}
		}
		p = unsafe.Add(p, before)
		if err := unix.MunmapPtr(unsafe.Add(p, size), uintptr(slack-before)); slack > before && err != nil {
			return nil, err
		}
	}
	b := unsafe.Slice((*byte)(p), size)
	if huge {
		// Advice only: without huge pages access is slower.
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	}
	return b, nil
}

func free(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(cap(b)))
}

func discard(b []byte) error {
	return unix.Madvise(b, unix.MADV_DONTNEED)
}

func smallPages(b []byte) {
	// Fails only on kernels without huge pages.
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
}

func populate(b []byte) {
	if len(b) > 0 {
		_ = unix.Madvise(b, unix.MADV_POPULATE_WRITE)
	}
}

func residentOf(b []byte) (int64, error) {
	const page = 4096
	if len(b) == 0 {
		return 0, nil
	}
	pages := make([]byte, (len(b)+page-1)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
	if errno != 0 {
		return 0, fmt.Errorf("mem: resident pages of %d bytes: %w", len(b), errno)
	}
	n := int64(0)
	for _, p := range pages {
		n += int64(p & 1)
	}
	return n * page, nil
}
