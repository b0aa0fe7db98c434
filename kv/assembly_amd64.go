//go:build !race

package kv

import (
	"unsafe"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
	"golang.org/x/sys/cpu"
)

// Buckets are searched by vector instructions: see match in package index. A mispredicted
// branch on a load that misses the cache would also discard the work on later operations that
// the processor has begun.
var (
	vectors  = cpu.X86.HasAVX2 && cpu.X86.HasBMI1
	vectors2 = vectors && cpu.X86.HasBMI2 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ
)

// scanAVX2 is scanWords, for n hashes.
//
//go:noescape
func scanAVX2(v *view, hashes *uint64, places *index.Place, n int) (absent int)

// scanAVX512 is scanAVX2 with wider vectors: fewer instructions between two prefetches.
//
//go:noescape
func scanAVX512(v *view, hashes *uint64, places *index.Place, n int) (absent int)

// newestAVX2 is newest.
//
//go:noescape
func newestAVX2(v *view, hash uint64, n int) (address int64)

// hashWordsAMD64 hashes the keys of n operations and prefetches their buckets, up to the
// first key that is not 8 bytes long. It returns the number of keys hashed.
//
//go:noescape
func hashWordsAMD64(v *view, ops **Op, hashes *uint64, n int) int

func (v *view) hashWords(l *lane) int { return hashWordsAMD64(v, &l.ops[0], &l.hashes[0], l.n) }

func (v *view) scan(l *lane) (absent int) {
	switch {
	case vectors2:
		return scanAVX512(v, &l.hashes[0], &l.places[0], l.n)
	case vectors:
		return scanAVX2(v, &l.hashes[0], &l.places[0], l.n)
	}
	return v.scanWords(l.hashes[:l.n], l.places[:l.n])
}

// newest returns the address of the newest record of a hash's chain, or 0 if the first bucket
// has no entry. It prefetches n bytes of a record in memory.
func (v *view) newest(hash uint64, n int) int64 {
	if vectors {
		return newestAVX2(v, hash, n)
	}
	return v.newestOf(hash)
}

// haveAssembly reports whether plain calls of 8-byte keys and values are in assembly. The
// assembly enters epochs by plain stores.
const haveAssembly = true

// Plain calls are in assembly from the arguments to the result: the fewer instructions a call
// takes, the more calls the processor overlaps. If they cannot complete a call, they end in
// readGeneral, upsertGeneral or rmwWordGeneral.

func readWord(s *Session, key, dst []byte) (done bool)

func upsertWord(s *Session, key, value []byte) (done bool)

func rmwWord(s *Session, key []byte, modify WordModifier) (done bool)

var _, _, _ = readGeneral, upsertGeneral, rmwWordGeneral

// findRMW finds a record whose lock-free value may be updated in place, and puts the value
// into s.oldWord and s.update for a Modifier. It returns no record if there is none. The
// session is outside its epoch afterwards.
//
//go:noescape
func findRMW(s *Session, key unsafe.Pointer) (record hlog.Record)
