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
	vectors2 = vectors && cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ
)

// matchAVX2 returns a bit for each word of the bucket whose top 16 bits are want.
//
//go:noescape
func matchAVX2(bucket unsafe.Pointer, want uint64) uint64

// lookupAVX2 returns the record whose key is the word, if it is the newest of its
// chain, found in the first bucket, and at or above floor, which is not below
// head.
//
//go:noescape
func lookupAVX2(p *probe, key uint64, floor int64) unsafe.Pointer

// scanAVX2 is scanWords, for n hashes.
//
//go:noescape
func scanAVX2(p *probe, hashes *uint64, slots *slot, n int)

// These are the whole of readDirect and storeDirect: of plain calls the processor
// has the more under way at once the fewer instructions each takes.

//go:noescape
func readAVX2(p *probe, key, dst unsafe.Pointer, count *counter) bool

//go:noescape
func readAVX512(p *probe, key, dst unsafe.Pointer, count *counter) bool

//go:noescape
func storeAVX2(p *probe, key, value unsafe.Pointer, count *counter) bool

//go:noescape
func storeAVX512(p *probe, key, value unsafe.Pointer, count *counter) bool

// match returns the number of the slot in the bucket that has want at its top,
// bucketEntries or more if none has. The link's top is zero, and want is not.
func match(bucket unsafe.Pointer, want uint64) int {
	if vectors {
		return bits.TrailingZeros64(matchAVX2(bucket, want))
	}
	return matchWords(bucket, want)
}

func (p *probe) lookup(key uint64, floor int64) unsafe.Pointer { return lookupAVX2(p, key, floor) }

// readDirect reads the value of a key, both of 8 bytes, from memory.
func (s *Session) readDirect(key, dst unsafe.Pointer) bool {
	if vectors2 {
		return readAVX512(&s.probe, key, dst, &s.counts.ops[OpRead])
	}
	return readAVX2(&s.probe, key, dst, &s.counts.ops[OpRead])
}

// storeDirect stores a value in the mutable region.
func (s *Session) storeDirect(key, value unsafe.Pointer) bool {
	if vectors2 {
		return storeAVX512(&s.probe, key, value, &s.counts.ops[OpUpsert])
	}
	return storeAVX2(&s.probe, key, value, &s.counts.ops[OpUpsert])
}

func (p *probe) scan(l *lane) {
	if vectors {
		scanAVX2(p, &l.hashes[0], &l.slots[0], l.n)
	} else {
		p.scanWords(l.hashes[:l.n], l.slots[:l.n])
	}
}
