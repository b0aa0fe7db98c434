//go:build race

package words

import (
	"sync/atomic"
	"unsafe"
)

// The race detector is shown whole words, changed by atomics, whose other bytes stay
// as they are. dst and src lie in memory of whole words.

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

// eachWord visits the words of which b is: b[at:] begins at byte from of the word,
// and it has the bytes up to to.
func eachWord(b []byte, visit func(word *uint64, at, from, to int)) {
	for at := 0; at < len(b); {
		p := unsafe.Pointer(&b[at])
		from := int(uintptr(p) & 7)
		to := min(8, from+len(b)-at)
		visit((*uint64)(unsafe.Add(p, -from)), at, from, to)
		at += to - from
	}
}
