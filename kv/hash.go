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
// up, multiples of large numbers, and YCSB's own, which are FNV hashes and
// cluster, all come out spread over the bits of bucket and tag: with the last
// shift as evenly as by chance, without it not. probe_amd64.h has it too.
func hashWord(k uint64) uint64 {
	hi, lo := bits.Mul64(k^hashSeed, hashFactor)
	h := hi ^ lo
	return h ^ h>>32
}

const (
	hashSeed   = 0x9e3779b97f4a7c15
	hashFactor = 0x9fb21c651e98df25
)
