//go:build amd64 || arm64

package prefetch

import "unsafe"

// Line starts to load the cache line at p into all levels of the cache. It
// waits for nothing and cannot fault, whatever p is.
//
//go:noescape
func Line(p unsafe.Pointer)
