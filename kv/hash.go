package kv

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// hashKey hashes keys of one word by hashWord and others with xxhash.
func hashKey(key []byte) uint64 {
	if len(key) == 8 {
		return hashWord(loadWord(key))
	}
	return xxhash.Sum64(key)
}

// hashWord hashes a word by a multiplication folded onto itself. Keys that count
// up, and YCSB's own, which are FNV hashes and cluster, come out spread over the
// bits of bucket and tag alike.
func hashWord(k uint64) uint64 {
	hi, lo := bits.Mul64(k^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	hi, lo = bits.Mul64(hi^lo^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
	return hi ^ lo
}
