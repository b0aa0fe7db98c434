//go:build !amd64 || race

package hlog

import "sync/atomic"

// setWord stores a word for readers that load it atomically, after everything
// that was stored before.
func setWord(p *uint64, word uint64) { atomic.StoreUint64(p, word) }
