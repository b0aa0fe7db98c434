package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv/internal/index"
)

// xxCollisions returns 1<<n keys that XXH64 without a seed maps to the same hash. In each of
// its lanes a difference in the first 8 bytes is undone 32 bytes later. Without the seed one
// guesses a sign for each of the n, and half of the guesses are right.
func xxCollisions(t *testing.T, n int) (keys [][]byte) {
	const prime1, prime2 = 11400714785074694791, 14029467366897019727
	inverse := func(p uint64) uint64 { // of an odd number, by Newton's method
		x := p
		for range 6 {
			x *= 2 - p*x
		}
		return x
	}
	round := func(lane, word uint64) uint64 { return bits.RotateLeft64(lane+word*prime2, 31) * prime1 }
	start := [4]uint64{0: prime1, 1: prime2, 3: 0}
	start[0] += prime2
	start[3] -= prime1
	for set := range 1 << n {
		key := make([]byte, (n+3)/4*64)
		lanes := start
		for i := 0; i < len(key); i += 64 {
			for l := range lanes {
				var first, second uint64
				plain := round(lanes[l], 0)
				if at := i/64*4 + l; at < n && set>>at&1 != 0 {
					first = (1 << 63) * inverse(prime2)
					second = (plain - round(lanes[l], first)) * inverse(prime2)
				}
				binary.LittleEndian.PutUint64(key[i+l*8:], first)
				binary.LittleEndian.PutUint64(key[i+32+l*8:], second)
				lanes[l] = round(plain, 0)
			}
		}
		keys = append(keys, key)
		if xxhash.Sum64(key) != xxhash.Sum64(keys[0]) {
			t.Fatalf("the %d. key has another xxHash than the first", set)
		}
	}
	return keys
}

// chosenBits is the number of bits of bucket and tag in an index of 16 buckets.
const chosenBits = 4 + tagBits

// choose finds n keys that hash maps to one bucket and tag.
func choose(n int, hash func([]byte) uint64, key func(n uint64) []byte) (keys [][]byte) {
	const mask = 1<<chosenBits - 1
	want := hash(key(0)) & mask
	for i := uint64(0); len(keys) < n; i++ {
		if k := key(i); hash(k)&mask == want {
			keys = append(keys, k)
		}
	}
	return keys
}

// TestChosenKeys stores keys chosen to share one chain, by an attacker that knows the program,
// or the seed of another store. It counts the device reads that reading them takes.
func TestChosenKeys(t *testing.T) {
	testrun.SkipRaced(t, "the search for keys takes minutes, in one goroutine")
	const keys, known = 64, 77
	text := func(n uint64) []byte { return append([]byte("user"), key8(n)...) }
	hash := index.NewHash(known)
	folded := func(key []byte) uint64 { // the hash of words without a seed
		hi, lo := bits.Mul64(binary.LittleEndian.Uint64(key)^0x9e3779b97f4a7c15, 0x9fb21c651e98df25)
		h := hi ^ lo
		return h ^ h>>32
	}
	for name, tc := range map[string]struct {
		keys  [][]byte
		sizes [2]int
		hash  func(key []byte) uint64
	}{
		"words for a hash without a seed": {choose(keys, folded, key8), [2]int{8, 8}, folded},
		"words for another store":         {choose(keys, hash.Of, key8), [2]int{8, 8}, nil},
		"text for another store":          {choose(keys, hash.Of, text), [2]int{}, nil},
		"text for xxHash":                 {xxCollisions(t, 6), [2]int{}, xxhash.Sum64},
	} {
		t.Run(name, func(t *testing.T) {
			opts := small(device.NewMemory(), tc.sizes[0], tc.sizes[1])
			opts.indexBits = 4
			if reads := readChosen(t, opts, tc.keys); reads > 2*keys {
				t.Errorf("%d records on the device were read for %d keys", reads, keys)
			}
			// Check that the keys are well chosen: with the known hash they form one chain.
			opts.Device, opts.hash, opts.hashSeed = device.NewMemory(), tc.hash, known
			if reads := readChosen(t, opts, tc.keys); reads < keys*keys/3 {
				t.Errorf("%d records on the device were read for %d keys of one chain", reads, keys)
			}
		})
	}
}

// readChosen returns the number of device reads for reading keys: the maximum over all ways to
// read and all ways to open the store.
func readChosen(t *testing.T, opts Options, keys [][]byte) (most uint64) {
	st := open(t, opts)
	s := st.NewSession()
	for _, key := range keys {
		if err := s.Upsert(key, key8(1)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(1000) { // moves the keys to the device, and grows the index
		if err := s.Upsert(key8(n|1<<63), key8(n)); err != nil {
			t.Fatal(err)
		}
	}
	closeAll(t, s)
	for _, kind := range []CheckpointKind{FoldOver, Index} {
		s := st.NewSession()
		for way, read := range waysToRead {
			before := st.Metrics().Device.Reads
			for i, value := range read(t, s, keys) {
				if string(value) != string(key8(1)) {
					t.Errorf("%s: key %x has value %x", way, keys[i], value)
				}
			}
			most = max(most, st.Metrics().Device.Reads-before)
		}
		closeAll(t, s)
		if _, err := st.Checkpoint(context.Background(), CheckpointOptions{Kind: kind}); err != nil {
			t.Fatal(err)
		}
		closeAll(t, st)
		opts.Device.(*device.Memory).Reopen()
		opts.hashSeed = 0 // taken from the manifest
		st = open(t, opts)
	}
	closeAll(t, st)
	return most
}

var waysToRead = map[string]func(t *testing.T, s *Session, keys [][]byte) [][]byte{
	"plain": func(t *testing.T, s *Session, keys [][]byte) (values [][]byte) {
		for _, key := range keys {
			value, err := s.Read(key, nil)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return values
	},
	"batch": func(t *testing.T, s *Session, keys [][]byte) (values [][]byte) {
		ops := make([]Op, len(keys))
		for i := range ops {
			ops[i].Key = keys[i]
		}
		if err := s.Do(context.Background(), ops); err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			values = append(values, ops[i].Value)
		}
		return values
	},
}

// TestHashIsTheStores reopens stores. Each keeps its seed, and one that was made with another
// function is refused.
func TestHashIsTheStores(t *testing.T) {
	seeds := make(map[uint64]bool)
	for range 4 {
		dev := device.NewMemory()
		st, err := Open(small(dev, 8, 8))
		if err != nil {
			t.Fatal(err)
		}
		seed, hash := st.recorded().HashSeed, st.keyHash
		seeds[seed] = true
		closeAll(t, st)
		st = open(t, small(dev.Reopen(), 8, 8))
		if st.recorded().HashSeed != seed || st.keyHash != hash {
			t.Errorf("opened with seed %#x, made with %#x", st.recorded().HashSeed, seed)
		}
		closeAll(t, st)
		opts := small(dev.Reopen(), 8, 8)
		opts.hash = func([]byte) uint64 { return 42 }
		if _, err := Open(opts); !errors.Is(err, ErrMismatch) {
			t.Errorf("opened with another hash: %v", err)
		}
		closeAll(t, dev)
	}
	if len(seeds) != 4 {
		t.Errorf("4 stores have %d seeds", len(seeds))
	}
}
