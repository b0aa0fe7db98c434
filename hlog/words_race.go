//go:build race

package hlog

import (
	"sync/atomic"
	"unsafe"
)

// Under the race detector values move word by word with atomics. A value read
// under a sequence lock is a race on purpose, and not used when it was torn;
// made of atomics it is none for the detector, which then checks all the rest.

func copyIn(p unsafe.Pointer, src []byte) {
	for i := 0; i < len(src); i += 8 {
		var word [8]byte
		copy(word[:], src[i:])
		atomic.StoreUint64((*uint64)(unsafe.Add(p, i)), *(*uint64)(unsafe.Pointer(&word)))
	}
}

func appendOut(dst []byte, p unsafe.Pointer, size int) []byte {
	for i := 0; i < size; i += 8 {
		word := atomic.LoadUint64((*uint64)(unsafe.Add(p, i)))
		dst = append(dst, (*[8]byte)(unsafe.Pointer(&word))[:min(8, size-i)]...)
	}
	return dst
}

func editInPlace(p unsafe.Pointer, size, space int, edit func([]byte) ([]byte, bool)) (int, bool) {
	copied := make([]byte, space)
	value, ok := edit(appendOut(copied[:0], p, size))
	if ok {
		copyIn(p, value[:min(len(value), space)])
	}
	return min(len(value), space), ok
}
