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
// operations meanwhile. With AVX2 all eight words are compared at once.
//
// These loads are not atomic as a whole. Each aligned word of them is, on every
// processor with AVX2; where an entry is found it is loaded again, as a word.
var vectors = cpu.X86.HasAVX2 && cpu.X86.HasBMI1

// matchVector returns a bit for each word of the bucket whose top 16 bits are
// want.
//
//go:noescape
func matchVector(bucket unsafe.Pointer, want uint64) uint64

// lookupVector is lookupWords; readVector and storeVector are the whole of
// readDirect and storeDirect: in these two, which are plain calls, how many of
// them the processor has under way at once is decided by how many instructions
// each takes.
//
//go:noescape
func lookupVector(p *probe, key uint64, floor int64) unsafe.Pointer

//go:noescape
func readVector(p *probe, key, dst unsafe.Pointer, count *counter) bool

//go:noescape
func storeVector(p *probe, key, value unsafe.Pointer, count *counter) bool

// scanVector is scanWords, for n hashes.
//
//go:noescape
func scanVector(p *probe, hashes *uint64, slots *slot, n int)

// match returns the number of the slot in the bucket that has want at its top,
// bucketEntries or more if none has. The link's top is zero, and want is not.
func match(bucket unsafe.Pointer, want uint64) int {
	if vectors {
		return bits.TrailingZeros64(matchVector(bucket, want))
	}
	return matchWords(bucket, want)
}

func (p *probe) lookup(key uint64, floor int64) unsafe.Pointer { return lookupVector(p, key, floor) }

// readDirect reads the value of a key, both of 8 bytes, from memory.
func (s *Session) readDirect(key, dst unsafe.Pointer) bool {
	return readVector(&s.probe, key, dst, &s.counts.ops[OpRead])
}

// storeDirect stores a value in the mutable region.
func (s *Session) storeDirect(key, value unsafe.Pointer) bool {
	return storeVector(&s.probe, key, value, &s.counts.ops[OpUpsert])
}

func (p *probe) scan(l *lane) {
	if vectors {
		scanVector(p, &l.hashes[0], &l.slots[0], l.n)
	} else {
		p.scanWords(l.hashes[:l.n], l.slots[:l.n])
	}
}
