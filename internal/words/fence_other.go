//go:build !amd64

package words

import "sync/atomic"

// Elsewhere an atomic add, which both acquires and releases, keeps the copy of
// a value on its side of the load or store. The word is shared, but only ever
// added to: correctness needs the barrier, not the number.
var fence atomic.Uint64

// LoadFence keeps loads before it ahead of atomic loads behind it.
func LoadFence() { fence.Add(1) }

// StoreFence keeps atomic stores before it ahead of stores behind it.
func StoreFence() { fence.Add(1) }
