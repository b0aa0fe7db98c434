//go:build !amd64

package mem

import "sync/atomic"

// On other processors the fence is an atomic addition, which both acquires and releases. Only
// the ordering matters; the value of fence is not used.
var fence atomic.Uint64

// LoadFence orders the loads before it with the atomic loads after it.
func LoadFence() { fence.Add(1) }

// StoreFence orders the atomic stores before it with the stores after it.
func StoreFence() { fence.Add(1) }
