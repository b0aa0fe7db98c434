//go:build !race

package hlog

import "unsafe"

// copyIn writes src to p, which has space for it up to the next multiple of 8.
func copyIn(p unsafe.Pointer, src []byte) {
	copy(unsafe.Slice((*byte)(p), len(src)), src)
}

// appendOut appends size bytes at p to dst.
func appendOut(dst []byte, p unsafe.Pointer, size int) []byte {
	return append(dst, unsafe.Slice((*byte)(p), size)...)
}
