//go:build amd64 || arm64

package mem

import "unsafe"

// Prefetch starts to load the cache line at p into all levels of the cache. It does not
// wait and cannot fault, whatever p is.
//
//go:noescape
func Prefetch(p unsafe.Pointer)

// PrefetchLines starts to load the cache lines of the n bytes at p into the second level
// of the cache, so that they do not evict the working set of the first.
//
//go:noescape
func PrefetchLines(p unsafe.Pointer, n int)
