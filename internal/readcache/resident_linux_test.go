//go:build linux && !race

package readcache

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resident is how many pages of mapped memory the system holds.
func resident(t *testing.T, b []byte) (pages int) {
	vec := make([]byte, (len(b)+4095)/4096)
	if _, _, err := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&vec[0]))); err != 0 {
		t.Fatal(err)
	}
	for _, page := range vec {
		pages += int(page & 1)
	}
	return pages
}
