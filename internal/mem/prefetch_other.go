//go:build !amd64 && !arm64

package mem

import "unsafe"

// Prefetch does nothing on this processor.
func Prefetch(unsafe.Pointer) {}

// PrefetchLines does nothing on this processor.
func PrefetchLines(unsafe.Pointer, int) {}
