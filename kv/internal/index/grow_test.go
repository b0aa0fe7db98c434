package index

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// TestInsertWhileTheMoverIsThere checks a bucket that is moved during the search of an inserter:
// the first place is as before the move, and the place that had the inserter's tag is moving.
func TestInsertWhileTheMoverIsThere(t *testing.T) {
	table, err := New(2, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := table.Free(); err != nil {
			t.Error(err)
		}
	}()
	const hash = 0x1234
	bucket, want := table.bucket(hash&table.mask), table.wanted(hash)
	mine := placeIn(bucket, 3)
	placeIn(bucket, 0).Store(table.wanted(^uint64(hash)).WithAddress(64))
	placeIn(bucket, 1).Store(want.WithAddress(128))
	mine.Store(want | Tentative)
	if !table.contested(hash, want, mine) {
		t.Error("two entries of one tag")
	}
	take(placeIn(bucket, 1))
	if !table.contested(hash, want, mine) {
		t.Error("an entry that is being moved was overlooked")
	}
}

// TestInsertersAndMover has sessions insert one key while its bucket is moved.
func TestInsertersAndMover(t *testing.T) {
	rounds := testrun.Raced(3000, 300)
	const hash, keys = 0x1234, 5
	hashes := make([]uint64, keys) // of one bucket, each of another tag
	for i := range hashes {
		hashes[i] = hash + uint64(i)<<4
	}
	for range rounds {
		from, err := New(2, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		to, err := New(3, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		from.next.Store(to)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for _, h := range hashes {
					for {
						if s, _, err := from.FindOrInsert(h); err != nil {
							t.Error(err)
						} else if s.p != nil {
							break
						}
					}
				}
			})
		}
		wg.Go(func() {
			runtime.Gosched()
			m := mover{from: from, to: to, begin: 0}
			m.move(hash & from.mask)
		})
		wg.Wait()
		found := map[Entry]int{}
		for b := range to.allBuckets() {
			for i := range BucketEntries {
				if e := placeIn(to.bucket(b), i).Load(); e != 0 {
					found[e]++
				}
			}
		}
		for e, n := range found {
			if n != 1 {
				t.Fatalf("entry %#x is there %d times", uint64(e), n)
			}
		}
		if err := errors.Join(from.Free(), to.Free()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMoverSplitsAndDrops steps the mover by hand.
func TestMoverSplitsAndDrops(t *testing.T) {
	from, err := New(1, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := New(2, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	from.next.Store(to)
	const begin = 1000
	for hash := range uint64(64) { // 32 in each bucket, which take 4 overflow buckets
		s, e, err := from.FindOrInsert(hash)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case hash%8 == 7: // below begin
			s.Store(e.WithAddress(begin - 8))
		case hash%8 != 6: // else it stays without an address
			s.Store(e.WithAddress(begin + int64(hash)*8))
		}
	}
	m := mover{from: from, to: to, begin: begin}
	m.move(0)
	if _, e, busy := from.Locate(1); busy || e.Address() != begin+8 {
		t.Errorf("in a bucket not moved yet: %x, %v", e, busy)
	}
	// Half way through a bucket: what is gone is neither there nor absent.
	if e := take(placeIn(from.bucket(1), 0)); e.Address() != begin+8 {
		t.Fatalf("the first entry is %x", e)
	}
	if s, _, busy := from.Locate(1); s.p != nil || !busy {
		t.Error("an entry that is being moved was found")
	}
	if s, _, err := from.FindOrInsert(129); s.p != nil || err != nil {
		t.Errorf("inserted into a bucket that is being moved: %v", err)
	}
	if s, e, busy := from.Locate(3); s.p == nil || busy || e.Address() != begin+24 {
		t.Error("an entry that is not being moved yet was not found")
	}
	placeIn(from.bucket(1), 0).Store(Used | 1<<AddressBits | begin + 8)
	m.move(1)
	for hash := range uint64(64) {
		s, e, busy := from.Locate(hash)
		switch there := hash%8 < 6; {
		case busy || (s.p != nil) != there:
			t.Errorf("hash %d: %x, busy %v", hash, e, busy)
		case there && (e.Address() != begin+int64(hash)*8 || !e.matches(to.wanted(hash))):
			t.Errorf("hash %d leads to %x", hash, e)
		}
	}
	if used := to.overflow.Load(); used != 6 { // for 16, 16, 8 and 8
		t.Errorf("48 entries in 4 buckets take %d overflow buckets", used)
	}
	if _, _, err := from.FindOrInsert(6); err != nil { // as for one that was never there
		t.Error(err)
	}
	if s, _ := to.Find(6); s.p == nil {
		t.Error("an entry was not inserted into the new table")
	}
	for _, tb := range []*Table{from, to} {
		if err := tb.Free(); err != nil {
			t.Error(err)
		}
	}
}
