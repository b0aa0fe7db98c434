//go:build race

package words

import (
	"sync/atomic"
	"unsafe"
)

func CopyIn(p unsafe.Pointer, src []byte) {
	for i := 0; i < len(src); i += 8 {
		var word [8]byte
		copy(word[:], src[i:])
		atomic.StoreUint64((*uint64)(unsafe.Add(p, i)), *(*uint64)(unsafe.Pointer(&word)))
	}
}

func AppendOut(dst []byte, p unsafe.Pointer, size int) []byte {
	for i := 0; i < size; i += 8 {
		word := atomic.LoadUint64((*uint64)(unsafe.Add(p, i)))
		dst = append(dst, (*[8]byte)(unsafe.Pointer(&word))[:min(8, size-i)]...)
	}
	return dst
}

func Edit(p unsafe.Pointer, size, space int, edit func([]byte) ([]byte, bool)) (int, bool) {
	copied := AppendOut(make([]byte, 0, space), p, size)
	// As in place: what was changed stays, also where edit says no or panics.
	written := copied
	defer func() { CopyIn(p, written) }()
	value, ok := edit(copied)
	if ok = ok && sameStart(value, copied); ok {
		written = value
	}
	return len(value), ok
}
