package index

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/redykv/redykv/internal/testrun"
)

// oneHash is the hash of one store.
var oneHash = NewHash(1)

// TestKeysSpreadAsByChance puts keys of every kind that is usual into indexes with
// hashes of many seeds and compares what that takes with hashes drawn by lot.
func TestKeysSpreadAsByChance(t *testing.T) {
	testrun.SkipRaced(t, "one goroutine counts")
	const bits = 12
	const keys = PerBucket << bits
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
		h := NewHash(seed)
		for name, key := range kinds {
			overflow, shared := spread(t, bits, keys, func(n uint64) uint64 { return h.Of(key(n)) })
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
	table, err := New(bits, bits, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range keys {
		s, e, err := table.FindOrInsert(hash(n))
		if err != nil {
			t.Fatal(err)
		}
		if e.Address() != 0 {
			shared++
		}
		s.Store(e.WithAddress(int64(n + 1)))
	}
	overflow = table.overflow.Load()
	if err := table.Free(); err != nil {
		t.Error(err)
	}
	return overflow, shared
}

// TestIndexTakesWhatTheOptionsSay checks the bytes for each key against the
// documentation of Options.Memory, up to where the index would grow.
func TestIndexTakesWhatTheOptionsSay(t *testing.T) {
	const records = PerBucket << 14
	for share := 5; share <= 10; share++ { // a table is half full to full as planned
		table, err := New(Bits(records), Bits(records), nil)
		if err != nil {
			t.Fatal(err)
		}
		keys := uint64(records * share / 10)
		for n := range keys {
			s, e, err := table.FindOrInsert(oneHash.Word.Of(n))
			if err != nil {
				t.Fatal(err)
			}
			s.Store(e.WithAddress(8))
		}
		if each := float64(table.Bytes()) / float64(keys); each < 13 || each > 26 {
			t.Errorf("%g bytes for each of %d keys", each, keys)
		}
		if table.Crowded() {
			t.Errorf("crowded with %d keys, made for %d", keys, records)
		}
		if err := table.Free(); err != nil {
			t.Error(err)
		}
	}
}

// key8 is a key of 8 bytes.
func key8(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

// TestMemory compares the estimate with what a table takes.
func TestMemory(t *testing.T) {
	for _, records := range []int64{0, 1, 20_000, 160_000, 163_840, 200_000, 327_680} {
		table, err := New(Bits(records), Bits(records), nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint64(records) {
			if _, _, err := table.FindOrInsert(oneHash.Word.Of(n)); err != nil {
				t.Fatal(err)
			}
		}
		got, want := Memory(records), table.Bytes()
		if got < want-want/50 || got > want+want/50 {
			t.Errorf("%d records: estimated %d bytes, the table takes %d", records, got, want)
		}
		if err := table.Free(); err != nil {
			t.Error(err)
		}
	}
	if n := Memory(1 << 62); n <= 0 {
		t.Errorf("of the largest number of records: %d bytes", n)
	}
}

// TestMatch compares the form of match for this processor with the portable one, among
// entries that match, nearly match, and are tentative or unused.
func TestMatch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 100_000 {
		var bucket [BucketEntries + 1]uint64
		want := EntryOf(r.Uint64(), 4)
		for i := range BucketEntries {
			e := want.WithAddress(r.Int64N(1 << AddressBits))
			switch r.IntN(12) {
			case 0:
			case 1:
				e |= Tentative
			case 2:
				e &^= Used
			default:
				e ^= 1 << (AddressBits + r.IntN(TagBits))
			}
			bucket[i] = uint64(e)
		}
		bucket[BucketEntries] = r.Uint64N(1 << 40)
		got := min(match(unsafe.Pointer(&bucket[0]), uint64(want>>AddressBits)), BucketEntries)
		if want := matchWords(unsafe.Pointer(&bucket[0]), uint64(want>>AddressBits)); got != want {
			t.Fatalf("entry %d of %x matches, want %d", got, bucket, want)
		}
		if got < BucketEntries {
			found++
		}
	}
	if found < 1000 {
		t.Errorf("only %d buckets had a matching entry", found)
	}
}

// TestVisit has the entries of a bucket before, while and after it is moved.
func TestVisit(t *testing.T) {
	from, err := New(2, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := from.Double()
	if err != nil {
		t.Fatal(err)
	}
	from.next.Store(to)
	want := map[int64]uint64{} // the hash of the record at each address
	for n := range uint64(30) {
		hash := 1 | n<<2
		p, e, err := from.FindOrInsert(hash)
		if err != nil {
			t.Fatal(err)
		}
		p.Store(e.WithAddress(int64(64 + 8*n)))
		want[e.Address()+int64(64+8*n)] = hash
	}
	check := func(when string) {
		t.Helper()
		seen := map[int64]bool{}
		whole := from.Visit(1, func(address int64, mask, class uint64) {
			if seen[address] || want[address]&mask != class {
				t.Errorf("%s: record at %d twice, or of another class than %x", when, address, class)
			}
			seen[address] = true
		})
		if !whole || len(seen) != len(want) {
			t.Errorf("%s: %d entries of %d, whole: %v", when, len(seen), len(want), whole)
		}
	}
	check("before")
	first := placeIn(from.bucket(1), 0)
	e := take(first)
	if from.Visit(1, func(int64, uint64, uint64) {}) {
		t.Error("a bucket that is being moved is whole")
	}
	first.Store(e)
	m := mover{from: from, to: to}
	m.move(1)
	check("after")
	for _, table := range []*Table{from, to} {
		if err := table.Free(); err != nil {
			t.Error(err)
		}
	}
}
