package index

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// Hash is the hash of a store's keys under its seed, which the manifest keeps: the
// records of the log are chained by it. An attacker who chooses keys but does not know the
// seed cannot choose them for one chain.
//
// Every step is a multiplication of 64 by 64 bits whose halves are combined, as in the hash of
// Go's maps on processors without AES. The factors depend on the seed in both functions.
type Hash struct {
	Word WordHash
	text [3]uint64
}

// NewHash derives a hash from a seed, with SplitMix64.
func NewHash(seed uint64) Hash {
	draw := func() uint64 {
		seed += golden
		z := (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	return Hash{
		Word: WordHash{Salt: draw(), First: draw() | 1, Second: draw() | 1},
		text: [3]uint64{draw(), draw(), draw()},
	}
}

// golden is 2^64 divided by the golden ratio, made odd.
const golden = 0x9e3779b97f4a7c15

// NewSeed draws a seed.
func NewSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // does not fail
	return binary.LittleEndian.Uint64(b[:])
}

// Of hashes a key. One of 8 bytes is hashed as a word.
func (h *Hash) Of(key []byte) uint64 {
	if len(key) == 8 {
		return h.Word.Of(binary.LittleEndian.Uint64(key))
	}
	return h.ofText(key)
}

// ofText hashes the key 16 bytes at a time, and then the rest, whose two halves may
// overlap, with the length.
func (h *Hash) ofText(key []byte) uint64 {
	n, state := uint64(len(key)), h.text[0]
	for ; len(key) > 16; key = key[16:] {
		state = fold(binary.LittleEndian.Uint64(key)^h.text[1], binary.LittleEndian.Uint64(key[8:])^state)
	}
	var a, b uint64
	switch m := len(key); {
	case m >= 8:
		a, b = binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[m-8:])
	case m >= 4:
		a, b = uint64(binary.LittleEndian.Uint32(key)), uint64(binary.LittleEndian.Uint32(key[m-4:]))
	case m > 0:
		a = uint64(key[0])<<16 | uint64(key[m/2])<<8 | uint64(key[m-1])
	}
	return fold(n^h.text[2], fold(a^h.text[1], b^state))
}

// WordHash is the hash of keys of 8 bytes. kv's assembly computes it as well. First and
// Second are odd.
type WordHash struct{ Salt, First, Second uint64 }

// Of hashes a word by two multiplications. Keys that count up, multiples of large
// numbers, and YCSB's keys, which are FNV hashes and cluster, all spread over the bits of
// bucket and tag as evenly as random ones. With one multiplication that would depend on
// the factor: about one factor in fifteen takes half as many buckets more, or twice.
func (w WordHash) Of(k uint64) uint64 {
	return fold(fold(k^w.Salt, w.First), w.Second)
}

// fold returns the two halves of the product of a and b, combined.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
