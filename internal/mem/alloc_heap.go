//go:build !linux || race

package mem

import "unsafe"

func alloc(size int) ([]byte, error) {
	align := alignmentOf(size)
	b := make([]byte, size+align)
	skip := (align - int(uintptr(unsafe.Pointer(&b[0]))%uintptr(align))) % align
	return b[skip : skip+size : skip+size], nil
}

func free([]byte) error { return nil }

func discard(b []byte) error {
	clear(b)
	return nil
}

func smallPages([]byte) {}

func populate([]byte) {}

func residentOf([]byte) (int64, error) { return -1, nil }
