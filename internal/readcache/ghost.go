package readcache

import "sync/atomic"

// ghosts remember what was fetched lately: four fingerprints in one word, the
// latest in the lowest bits. They decide what is worth its place in a full cache:
// what is fetched a second time before its word has seen four others. A bucket
// has its own, in the line that a miss has looked at just before.

// seen reports whether the hash is among the ghosts of its word, and makes it the
// latest. Two goroutines at once may lose one of their ghosts, which costs a
// fetch.
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
