package kv

import (
	"math/bits"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// hashKey hashes keys of one word by a multiplication folded onto itself, and
// others with xxhash. YCSB's own keys are FNV hashes, which cluster; both of
// these spread them again over the bits of bucket and tag.
func hashKey(key []byte) uint64 {
	if len(key) == 8 {
		k := *(*uint64)(unsafe.Pointer(unsafe.SliceData(key)))
		hi, lo := bits.Mul64(k^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
		hi, lo = bits.Mul64(hi^lo^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
		return hi ^ lo
	}
	return xxhash.Sum64(key)
}
