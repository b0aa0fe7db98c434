//go:build !amd64

package mem

import "sync/atomic"

// Elsewhere an atomic addition, which both acquires and releases, is the fence. The word
// is shared and only ever added to: the barrier matters, not the number.
var fence atomic.Uint64

// LoadFence orders the loads before it with the atomic loads after it.
func LoadFence() { fence.Add(1) }

// StoreFence orders the atomic stores before it with the stores after it.
func StoreFence() { fence.Add(1) }
