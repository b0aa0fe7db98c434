//go:build !race

package index

import (
	"math/bits"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// The position of an entry in its bucket is random: a search entry by entry costs about one
// mispredicted branch per key. Vector instructions compare all eight words of a bucket at once.
//
// A vector load is not atomic as a whole. Each aligned word of it is, on every processor
// with AVX2; an entry that is found is loaded again as a word.
var vectors = cpu.X86.HasAVX2 && cpu.X86.HasBMI1

// matchAVX2 returns a bit for each word of the bucket whose top 16 bits are want.
//
//go:noescape
func matchAVX2(bucket unsafe.Pointer, want uint64) uint64

// match returns the number of the entry in the bucket whose top bits are want, or
// BucketEntries or more. The top bits of the link are zero, and those of want are not.
func match(bucket unsafe.Pointer, want uint64) int {
	if vectors {
		return bits.TrailingZeros64(matchAVX2(bucket, want))
	}
	return matchWords(bucket, want)
}
