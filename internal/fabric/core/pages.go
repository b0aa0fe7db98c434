package core

import (
	"os"
	"unsafe"
)

// DiscardPages makes b, mapped memory, read as zeros: it calls discard for the whole pages in
// it, and clears the rest.
func DiscardPages(b []byte, discard func(pages []byte) error) error {
	page := os.Getpagesize()
	head := min(-int(uintptr(unsafe.Pointer(unsafe.SliceData(b))))&(page-1), len(b))
	whole := (len(b) - head) &^ (page - 1)
	clear(b[:head])
	clear(b[head+whole:])
	if whole == 0 {
		return nil
	}
	return discard(b[head : head+whole])
}
