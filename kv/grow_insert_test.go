package kv

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/redykv/redykv/internal/machine"
)

// TestInsertWhileTheMoverIsThere looks at a bucket as an inserter may find it
// who was held up within his search: the first slot as it was before the mover
// came, and the slot taken that had his tag.
func TestInsertWhileTheMoverIsThere(t *testing.T) {
	table, err := newTable(2, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := table.free(); err != nil {
			t.Error(err)
		}
	}()
	const hash = 0x1234
	bucket, want := table.bucket(hash&table.mask), table.wanted(hash)
	mine := slotIn(bucket, 3)
	slotIn(bucket, 0).store(table.wanted(^uint64(hash)).at(64))
	slotIn(bucket, 1).store(want.at(128))
	mine.store(want | entryTentative)
	if !table.contested(hash, want, mine) {
		t.Error("two entries of one tag")
	}
	take(slotIn(bucket, 1))
	if !table.contested(hash, want, mine) {
		t.Error("an entry that is being moved was overlooked")
	}
}

// TestInsertersAndMover has sessions insert one key while its bucket is moved.
func TestInsertersAndMover(t *testing.T) {
	rounds := 3000
	if machine.RaceDetector {
		rounds = 300
	}
	const hash, keys = 0x1234, 5
	hashes := make([]uint64, keys) // of one bucket, each of another tag
	for i := range hashes {
		hashes[i] = hash + uint64(i)<<4
	}
	for range rounds {
		from, err := newTable(2, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		to, err := newTable(3, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		from.next.Store(to)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for _, h := range hashes {
					for {
						if s, _, err := from.findOrInsert(h); err != nil {
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
		found := map[entry]int{}
		for b := range to.buckets() {
			for i := range bucketEntries {
				if e := slotIn(to.bucket(b), i).load(); e != 0 {
					found[e]++
				}
			}
		}
		for e, n := range found {
			if n != 1 {
				t.Fatalf("entry %#x is there %d times", uint64(e), n)
			}
		}
		if err := errors.Join(from.free(), to.free()); err != nil {
			t.Fatal(err)
		}
	}
}
