//go:build amd64 || arm64

package prefetch

import "unsafe"

// Line starts to load the cache line at p into all levels of the cache. It
// waits for nothing and cannot fault, whatever p is.
//
//go:noescape
func Line(p unsafe.Pointer)

// Lines starts to load the lines of the n bytes at p into the second level of the
// cache, so that they do not take the place of what is at work in the first.
//
//go:noescape
func Lines(p unsafe.Pointer, n int)
