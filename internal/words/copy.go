//go:build !race

package words

import "unsafe"

// CopyIn writes src to p and zeros up to the next multiple of 8, which belongs
// to it.
func CopyIn(p unsafe.Pointer, src []byte) {
	if rest := len(src) & 7; rest != 0 {
		*(*uint64)(unsafe.Add(p, len(src)-rest)) = 0
	}
	copy(unsafe.Slice((*byte)(p), len(src)), src)
}

// AppendOut appends size bytes at p to dst.
func AppendOut(dst []byte, p unsafe.Pointer, size int) []byte {
	return append(dst, unsafe.Slice((*byte)(p), size)...)
}

// Edit hands size bytes at p, in a space of so many, to edit, in place where it
// can, and returns the new length. Edit has said no as well if it returns other memory
// than it was given. Whatever it says, the bytes may have changed.
func Edit(p unsafe.Pointer, size, space int, edit func([]byte) ([]byte, bool)) (int, bool) {
	given := unsafe.Slice((*byte)(p), space)[:size]
	value, ok := edit(given)
	return len(value), ok && sameStart(value, given)
}
