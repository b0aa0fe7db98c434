//go:build !amd64 || race

package mem

import "sync/atomic"

// StoreRelease stores v at p, after all earlier stores, for readers that load it
// atomically.
func StoreRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
