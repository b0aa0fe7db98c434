package kv

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
)

// oneHash is the hash of one store.
var oneHash = newKeyHash(1)

// TestKeysSpreadAsByChance puts keys of every kind that is usual into indexes with
// hashes of many seeds and compares what that takes with hashes drawn by lot.
func TestKeysSpreadAsByChance(t *testing.T) {
	const bits = 12
	const keys = perBucket << bits
	rng := rand.New(rand.NewPCG(1, 2))
	byLot := func(uint64) uint64 { return rng.Uint64() }
	wantOverflow, wantShared := spread(t, bits, keys, byLot)

	kinds := map[string]func(n uint64) []byte{
		"sequential": key8,
		"big-endian": func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) },
		"FNV of a counter": func(n uint64) []byte {
			h := fnv.New64()
			_, _ = h.Write(key8(n))
			return key8(h.Sum64())
		},
		"text":            func(n uint64) []byte { return fmt.Appendf(nil, "user%d", n) },
		"text of 8 bytes": func(n uint64) []byte { return fmt.Appendf(nil, "k%07d", n) },
		"long text":       func(n uint64) []byte { return fmt.Appendf(nil, "%0100d:%030d", n, n%7) },
		"zeros":           func(n uint64) []byte { return make([]byte, n) },
		"every fourth bit": func(n uint64) []byte {
			w := uint64(0)
			for i := range 16 {
				w |= n >> i & 1 << (4 * i)
			}
			return key8(w)
		},
		"floating point": func(n uint64) []byte { return key8(math.Float64bits(float64(n))) },
	}
	for shift := uint(3); shift <= 48; shift += 5 {
		kinds[fmt.Sprintf("multiples of 2^%d", shift)] = func(n uint64) []byte { return key8(n << shift) }
	}
	for _, factor := range []uint64{10, 1000, 1e6, 1e9} {
		kinds[fmt.Sprintf("multiples of %d", factor)] = func(n uint64) []byte { return key8(n * factor) }
	}
	for seed := range uint64(8) {
		h := newKeyHash(seed)
		for name, key := range kinds {
			overflow, shared := spread(t, bits, keys, func(n uint64) uint64 { return h.of(key(n)) })
			if float64(overflow) > 1.15*float64(wantOverflow) || shared > wantShared+wantShared/2+20 {
				t.Errorf("%s, seed %d: %d overflow buckets and %d shared entries, by chance %d and %d",
					name, seed, overflow, shared, wantOverflow, wantShared)
			}
		}
	}
}

// spread returns how many overflow buckets keys take, and how many of them share
// an entry with another.
func spread(t *testing.T, bits int, keys uint64, hash func(n uint64) uint64) (overflow uint64, shared int) {
	table, err := newTable(bits, bits, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range keys {
		s, e, err := table.findOrInsert(hash(n))
		if err != nil {
			t.Fatal(err)
		}
		if e.address() != 0 {
			shared++
		}
		s.store(e.at(int64(n + 1)))
	}
	overflow = table.overflow.Load()
	if err := table.free(); err != nil {
		t.Error(err)
	}
	return overflow, shared
}

// TestIndexTakesWhatTheOptionsSay checks the bytes for each key against the
// documentation of Options.Memory, up to where the index would grow.
func TestIndexTakesWhatTheOptionsSay(t *testing.T) {
	const records = perBucket << 14
	for share := 5; share <= 10; share++ { // a table is half full to full as planned
		table, err := newTable(tableBits(records), tableBits(records), nil)
		if err != nil {
			t.Fatal(err)
		}
		keys := uint64(records * share / 10)
		for n := range keys {
			s, e, err := table.findOrInsert(oneHash.word.of(n))
			if err != nil {
				t.Fatal(err)
			}
			s.store(e.at(8))
		}
		if each := float64(table.bytes()) / float64(keys); each < 13 || each > 26 {
			t.Errorf("%g bytes for each of %d keys", each, keys)
		}
		if table.crowded() {
			t.Errorf("crowded with %d keys, made for %d", keys, records)
		}
		if err := table.free(); err != nil {
			t.Error(err)
		}
	}
}
