//go:build race

package mem

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

func Edit(p unsafe.Pointer, size, space int, edit func([]byte) ([]byte, bool)) (n int, ok bool) {
	copied := AppendOut(make([]byte, 0, space), p, size)
	// Changes stay even if edit returns false or panics, as in the plain version.
	written := copied
	defer func() { CopyIn(p, written) }()
	value, ok := edit(copied)
	if ok = ok && sameStart(value, copied); ok {
		written = value
	}
	return len(value), ok
}

// CopyBytesIn and CopyBytesOut access whole words. CopyBytesIn changes them atomically and
// preserves bytes outside of dst. dst and src are in memory of whole words.

func CopyBytesIn(dst, src []byte) {
	eachWord(dst, func(word *uint64, at, from, to int) {
		for {
			old := atomic.LoadUint64(word)
			changed := old
			copy((*[8]byte)(unsafe.Pointer(&changed))[from:to], src[at:])
			if atomic.CompareAndSwapUint64(word, old, changed) {
				return
			}
		}
	})
}

func CopyBytesOut(dst, src []byte) {
	eachWord(src, func(word *uint64, at, from, to int) {
		v := atomic.LoadUint64(word)
		copy(dst[at:], (*[8]byte)(unsafe.Pointer(&v))[from:to])
	})
}

// eachWord visits the words that b overlaps. b[at:] begins at byte from of the word, and b
// covers the word's bytes [from, to).
func eachWord(b []byte, visit func(word *uint64, at, from, to int)) {
	for at := 0; at < len(b); {
		p := unsafe.Pointer(&b[at])
		from := int(uintptr(p) & 7)
		to := min(8, from+len(b)-at)
		visit((*uint64)(unsafe.Add(p, -from)), at, from, to)
		at += to - from
	}
}
