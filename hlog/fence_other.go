//go:build !amd64

package hlog

import "sync/atomic"

// Elsewhere an atomic add, which both acquires and releases, keeps the copy of
// a value on its side of the header's load or store. The word is shared, but
// only ever added to: correctness needs the barrier, not the number.
var fence atomic.Uint64

func loadFence()  { fence.Add(1) }
func storeFence() { fence.Add(1) }
