//go:build !race

package kv

import (
	"math/bits"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Where an entry stands in its bucket is random, so that a search entry by entry
// mispredicts about once for each key; and a branch on what has not come from
// memory yet, mispredicted, throws away what the processor did of the following
// operations meanwhile. With vectors all eight words are compared at once.
//
// These loads are not atomic as a whole. Each aligned word of them is, on every
// processor with AVX2; where an entry is found it is loaded again, as a word.
var (
	vectors  = cpu.X86.HasAVX2 && cpu.X86.HasBMI1
	vectors2 = vectors && cpu.X86.HasBMI2 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ
)

// matchAVX2 returns a bit for each word of the bucket whose top 16 bits are want.
//
//go:noescape
func matchAVX2(bucket unsafe.Pointer, want uint64) uint64

// scanAVX2 is scanWords, for n hashes.
//
//go:noescape
func scanAVX2(p *probe, hashes *uint64, slots *slot, n int) (absent int)

// scanAVX512 is the same with wider vectors, and so with fewer instructions between
// one prefetch and the next.
//
//go:noescape
func scanAVX512(p *probe, hashes *uint64, slots *slot, n int) (absent int)

// newestAVX2 is newest.
//
//go:noescape
func newestAVX2(p *probe, hash uint64, n int) (address int64)

// hashWordsAMD64 is hashLane for n operations, up to the first whose key is no word.
// It returns how many that are.
//
//go:noescape
func hashWordsAMD64(p *probe, ops **Op, hashes *uint64, n int) int

func (p *probe) hashWords(l *lane) int { return hashWordsAMD64(p, &l.ops[0], &l.hashes[0], l.n) }

// match returns the number of the slot in the bucket that has want at its top,
// bucketEntries or more if none has. The link's top is zero, and want is not.
func match(bucket unsafe.Pointer, want uint64) int {
	if vectors {
		return bits.TrailingZeros64(matchAVX2(bucket, want))
	}
	return matchWords(bucket, want)
}

func (p *probe) scan(l *lane) (absent int) {
	switch {
	case vectors2:
		return scanAVX512(p, &l.hashes[0], &l.slots[0], l.n)
	case vectors:
		return scanAVX2(p, &l.hashes[0], &l.slots[0], l.n)
	}
	return p.scanWords(l.hashes[:l.n], l.slots[:l.n])
}

// newest is the address of the newest record of a hash's chain, 0 where the first bucket
// has none. If that is in memory, n bytes of it are asked for.
func (p *probe) newest(hash uint64, n int) int64 {
	if vectors {
		return newestAVX2(p, hash, n)
	}
	return p.newestOf(hash)
}
