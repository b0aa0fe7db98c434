package mem

import (
	"bytes"
	"testing"
	"unsafe"
)

func TestCopiesAreExact(t *testing.T) {
	for size := range 40 {
		src := make([]byte, size)
		for i := range src {
			src[i] = byte(i + 1)
		}
		var memory [6]uint64
		for i := range memory {
			memory[i] = ^uint64(0)
		}
		CopyIn(unsafe.Pointer(&memory[0]), src)
		got := AppendOut([]byte("kept"), unsafe.Pointer(&memory[0]), size)
		if !bytes.Equal(got, append([]byte("kept"), src...)) {
			t.Errorf("%d bytes: %x", size, got)
		}
		all := unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), 48)
		owned := (size + 7) &^ 7
		if !bytes.Equal(all[size:owned], make([]byte, owned-size)) {
			t.Errorf("%d bytes: padding %x", size, all[size:owned])
		}
		if !bytes.Equal(all[owned:], bytes.Repeat([]byte{0xff}, 48-owned)) {
			t.Errorf("%d bytes: wrote behind its last word: %x", size, all[owned:])
		}
	}
}

func TestCopyBytes(t *testing.T) {
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&make([]uint64, 4)[0])), 32)
	for from := range 16 {
		for n := range 17 {
			for i := range memory {
				memory[i] = byte(100 + i)
			}
			want := bytes.Clone(memory)
			src := bytes.Repeat([]byte{7}, n)
			copy(want[from:], src)
			CopyBytesIn(memory[from:from+n], src)
			if !bytes.Equal(memory, want) {
				t.Fatalf("%d bytes at %d: %v, want %v", n, from, memory, want)
			}
			dst := make([]byte, n)
			if CopyBytesOut(dst, memory[from:from+n]); !bytes.Equal(dst, src) {
				t.Fatalf("%d bytes at %d: read %v", n, from, dst)
			}
		}
	}
}
