//go:build !race

package mem

import "unsafe"

// CopyIn writes src to p and zeros up to the next multiple of 8.
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

// Edit passes the size bytes at p, with a capacity of space, to edit and returns the new
// length. edit may change the bytes in place. ok is false if edit returned false or a slice of
// other memory; the bytes may have changed even so.
func Edit(p unsafe.Pointer, size, space int, edit func([]byte) ([]byte, bool)) (n int, ok bool) {
	given := unsafe.Slice((*byte)(p), space)[:size]
	value, ok := edit(given)
	return len(value), ok && sameStart(value, given)
}

// CopyBytesIn copies src to dst, which has the same length. Concurrent readers and writers of
// dst may see any mixture of old and new bytes.
func CopyBytesIn(dst, src []byte) { copy(dst, src) }

// CopyBytesOut copies src, which may be written concurrently, to dst, which has the same
// length.
func CopyBytesOut(dst, src []byte) { copy(dst, src) }
