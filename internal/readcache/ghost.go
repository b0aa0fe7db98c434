package readcache

import "sync/atomic"

// Ghosts are fingerprints of recently fetched addresses, four in one word, the latest in the
// lowest bits. A full cache admits a record whose fingerprint is among them: one that is
// fetched again before four others of the same word. Each bucket has its own word, in the
// cache line that a miss has just read.

// seen reports whether the hash is among the ghosts of its word, and makes it the latest.
// Concurrent calls may lose a ghost, which costs one fetch.
func seen(word *uint64, hash uint64) bool {
	const lane = 1<<16 - 1
	print := max(hash>>16&lane, 1)
	ghosts := atomic.LoadUint64(word)
	for g := ghosts; g != 0; g >>= 16 {
		if g&lane == print {
			return true
		}
	}
	atomic.StoreUint64(word, ghosts<<16|print)
	return false
}
