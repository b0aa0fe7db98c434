//go:build linux && !race

package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func alloc(size int) ([]byte, error) {
	// mmap aligns to small pages only. Huge ones need their own alignment: map
	// that much more and unmap what sticks out on both sides.
	slack := 0
	if size >= HugePage {
		slack = HugePage
	}
	size = (size + 4095) &^ 4095
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size+slack), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	if slack > 0 {
		before := (HugePage - int(uintptr(p)%HugePage)) % HugePage
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
	if slack > 0 {
		// Advice only: without huge pages everything works, more slowly.
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
