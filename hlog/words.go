//go:build !race

package hlog

import "unsafe"

// copyIn writes src to p and zeros up to the next multiple of 8, which belongs
// to it: values of one word are compared with their padding.
func copyIn(p unsafe.Pointer, src []byte) {
	if rest := len(src) & 7; rest != 0 {
		*(*uint64)(unsafe.Add(p, len(src)-rest)) = 0
	}
	copy(unsafe.Slice((*byte)(p), len(src)), src)
}

// appendOut appends size bytes at p to dst.
func appendOut(dst []byte, p unsafe.Pointer, size int) []byte {
	return append(dst, unsafe.Slice((*byte)(p), size)...)
}

// editInPlace hands the memory at p to edit, and returns the new length.
func editInPlace(p unsafe.Pointer, size, space int, edit func([]byte) ([]byte, bool)) (int, bool) {
	value, ok := edit(unsafe.Slice((*byte)(p), space)[:size])
	return min(len(value), space), ok
}
