//go:build !amd64 || race

package words

import "sync/atomic"

// Store stores v at p, after everything that was stored before, for readers that
// load it atomically.
func Store(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
