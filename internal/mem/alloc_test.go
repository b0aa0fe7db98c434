package mem

import (
	"bytes"
	"testing"
	"unsafe"
)

func TestAllocIsZeroedAndAligned(t *testing.T) {
	for _, size := range []int{1, 4096, 5000, 8192, 64 << 10, 100_000, 256 << 10, HugePage - 1, HugePage, 3*HugePage + 1} {
		b, err := Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) < size || !bytes.Equal(b, make([]byte, len(b))) {
			t.Fatalf("Alloc(%d): %d bytes, not all zero", size, len(b))
		}
		align := uintptr(4096)
		for align < HugePage && align*2 <= uintptr(size) {
			align *= 2
		}
		if p := uintptr(unsafe.Pointer(&b[0])); p%align != 0 {
			t.Errorf("Alloc(%d) at %#x, not aligned to %d", size, p, align)
		}
		b[size-1] = 1
		if err := Free(b); err != nil {
			t.Error(err)
		}
	}
}

func TestDiscardZeroes(t *testing.T) {
	b, err := Alloc(4 * HugePage)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Free(b); err != nil {
			t.Error(err)
		}
	}()
	for i := range b {
		b[i] = 0xff
	}
	if n, err := ResidentOf(b); err != nil || n >= 0 && n != 4*HugePage {
		t.Errorf("%d bytes resident of %d written, %v", n, 4*HugePage, err)
	}
	if err := Discard(b[4096 : HugePage+8192]); err != nil {
		t.Fatal(err)
	}
	if n, err := ResidentOf(b); err != nil || n >= 0 && n != 3*HugePage-4096 {
		t.Errorf("%d bytes resident after discarding %d, %v", n, HugePage+4096, err)
	}
	if b[4095] != 0xff || b[4096] != 0 || b[HugePage+8191] != 0 || b[HugePage+8192] != 0xff {
		t.Error("Discard zeroed something else than what it was given")
	}
}

func TestAllocRefusesNonsense(t *testing.T) {
	for _, size := range []int{0, -1, 1 << 60} {
		if _, err := Alloc(size); err == nil {
			t.Errorf("Alloc(%d): want an error", size)
		}
	}
}
