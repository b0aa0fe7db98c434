package kv

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// keyHash is the hash of a store's keys under its seed, which the manifest keeps: the
// records of the log are chained by it. Whoever chooses keys and does not know the seed
// cannot choose them for one chain.
//
// Every step is a multiplication of 64 by 64 bits, folded: Go's own maps hash so where
// the processor has no AES. The factors depend on the seed in both functions, and with
// them what difference between two keys makes what difference between their hashes. To
// seed xxHash, or to xor a seed to the key before a known multiplication, would not do:
// xxHash has 16-byte keys with the same hash under every seed, and many more of 64
// bytes. SipHash would be safe also from those who time single operations very exactly;
// it costs more for each key.
type keyHash struct {
	word wordHash
	text [3]uint64
}

// newKeyHash draws the words of a hash from a seed, as SplitMix64 does.
func newKeyHash(seed uint64) keyHash {
	draw := func() uint64 {
		seed += golden
		z := (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	return keyHash{
		word: wordHash{salt: draw(), first: draw() | 1, second: draw() | 1},
		text: [3]uint64{draw(), draw(), draw()},
	}
}

// golden is 2^64 divided by the golden ratio, made odd.
const golden = 0x9e3779b97f4a7c15

// newHashSeed draws a seed.
func newHashSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // which never fails
	return binary.LittleEndian.Uint64(b[:])
}

// of hashes a key: one of 8 bytes as a word.
func (h *keyHash) of(key []byte) uint64 {
	if len(key) == 8 {
		return h.word.of(loadWord(key))
	}
	return h.ofText(key)
}

// ofText hashes the key 16 bytes at a time, and what is left, whose parts may overlap,
// with its length.
func (h *keyHash) ofText(key []byte) uint64 {
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

// wordHash is the hash of keys of one word. view_amd64.h has it too.
type wordHash struct{ salt, first, second uint64 } // the factors are odd

// of hashes a word by two multiplications. Keys that count up, multiples of large
// numbers, and YCSB's own, which are FNV hashes and cluster, all come out spread over the
// bits of bucket and tag as evenly as by chance. After one multiplication that depends on
// the factor: with one in some fifteen they take half as many buckets more, or twice.
func (w wordHash) of(k uint64) uint64 {
	return fold(fold(k^w.salt, w.first), w.second)
}

// fold is the product of a and b, its halves put together.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
