package kv

import (
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// A store with Options.CountKeys knows how many keys it has. Every change of a key
// looks for the record that it replaces, on the device if need be, and counts at
// the moment when it has its effect, inside its epoch: so a barrier finds the
// number that belongs to what is in the log, and a commit keeps it.
//
// Keys that expire are counted once more by when they do: nobody notices the
// moment itself, but a sum tells how many have.

// census counts the keys that expire.
type census struct {
	mu sync.Mutex
	// ends is how many keys expire in each slice of time; a key that is changed
	// leaves its slice. Those before past have been taken out, and into gone.
	ends  map[int64]int64
	past  int64
	gone  int64
	timed int64 // the sum of ends
	// since is when a count by scan was made: what had expired by then is not in it.
	// It does not change once the store is open.
	since int64
}

// sliceBits is the length of a slice of time as a power of two milliseconds: about
// a second.
const sliceBits = 10

// sliceOf is the slice after whose beginning a record of that expiry is gone.
func sliceOf(expires int64) int64 { return (expires-1)>>sliceBits + 1 }

// add counts n more keys that expire then.
func (c *census) add(expires, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addSlice(sliceOf(expires), n)
}

func (c *census) addSlice(slice, n int64) {
	if slice <= c.past {
		c.gone += n
		return
	}
	if c.ends[slice] += n; c.ends[slice] == 0 {
		delete(c.ends, slice)
	}
	c.timed += n
}

// expired is how many of the keys that were ever counted have expired, and how many
// others will.
func (c *census) expired(now int64) (gone, timed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if past := now >> sliceBits; past > c.past {
		c.past = past
		for slice, n := range c.ends {
			if slice <= past {
				c.gone += n
				c.timed -= n
				delete(c.ends, slice)
			}
		}
	}
	return c.gone, c.timed
}

// clear is for a barrier after which there are no keys.
func (c *census) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.ends)
	c.gone, c.timed = 0, 0
}

// nearSlices is how many slices ahead are kept one by one; twice as far, two by
// two; and so on.
const nearSlices = 64

// count is the census for a manifest, of a store with so many keys ever counted.
func (c *census) count(keys, now int64) *manifest.KeyCount {
	gone, _ := c.expired(now)
	c.mu.Lock()
	together := make(map[int64]int64)
	for slice, n := range c.ends {
		if far := bits.Len64(uint64((slice - c.past) / nearSlices)); far > 0 {
			slice = (slice + 1<<far - 1) >> far << far
		}
		together[slice] += n
	}
	c.mu.Unlock()
	k := &manifest.KeyCount{Keys: keys - gone, Since: c.since}
	last := int64(0)
	for _, slice := range slices.Sorted(maps.Keys(together)) {
		if n := together[slice]; n != 0 {
			k.Ends = append(k.Ends, slice-last, n)
			last = slice
		}
	}
	return k
}

// restore is the inverse of count, for a census that is empty.
func (c *census) restore(k *manifest.KeyCount) {
	c.since = k.Since
	slice := int64(0)
	for i := 0; i+1 < len(k.Ends); i += 2 {
		slice += k.Ends[i]
		c.addSlice(slice, k.Ends[i+1])
	}
}

// KeyCount says how many keys there are, and how many of them expire some day: at
// once, and exactly, but for keys that have expired within the last second. After
// the store was opened, a key that was to expire later is counted for up to a
// sixty-fourth of the time longer that it had when the store was committed last.
// Stores without Options.CountKeys do not know: ok is false.
func (st *Store) KeyCount() (all, expiring int64, ok bool) {
	if st.census == nil {
		return 0, 0, false
	}
	gone, timed := st.census.expired(st.now())
	return st.keysCounted() - gone, timed, true
}

// keysCounted is the sum of what sessions have counted.
func (st *Store) keysCounted() int64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.keysCountedLocked()
}

// keysCountedLocked is keysCounted for who holds mu.
func (st *Store) keysCountedLocked() int64 {
	n := st.keysPast
	for s := range st.sessions {
		n += s.keys.load()
	}
	return n
}

// enterCount fills in the count of a state, in its barrier.
func (st *Store) enterCount(s *manifest.State) {
	if st.census != nil {
		s.Count = st.census.count(st.keysCounted(), st.now())
	}
}

// beginCensus takes the count over from the state that was recovered. One that was
// left by a store which did not count is made anew, by going through the log.
func (st *Store) beginCensus(s *manifest.State) error {
	if st.census == nil {
		return nil
	}
	if s.Count != nil || s.Tail == s.Begin {
		if s.Count != nil {
			st.keysPast = s.Count.Keys
			st.census.restore(s.Count)
		}
		return nil
	}
	began := time.Now()
	// The scan shows what there is at one moment. Nobody else uses the store yet.
	clock, now := st.now, st.now()
	st.now = func() int64 { return now }
	defer func() { st.now = clock }()
	st.census.since = now
	for r, err := range st.Scan() {
		if err != nil {
			return err
		}
		st.keysPast++
		if r.Expires != 0 {
			st.census.add(r.Expires, 1)
		}
	}
	st.opts.Logger.Info("the store's keys were counted", "keys", st.keysPast, "took", time.Since(began))
	return nil
}

// keyTally is a number that its session alone changes, as a counter, but which may
// go down.
type keyTally uint64

func (b *keyTally) add(n int64) { mem.StoreRelease((*uint64)(b), uint64(int64(*b)+n)) }

func (b *keyTally) load() int64 { return int64(atomic.LoadUint64((*uint64)(b))) }

// recount counts a change of a key that has its effect: there was a record of it,
// until was, which may be past, or none. With Put there is one now, with Remove
// there is none.
func (s *Session) recount(there bool, was int64, verdict Verdict, expires int64) {
	if !s.counting {
		return
	}
	if was != 0 && was <= s.store.census.since {
		there, was = false, 0
	}
	switch is := verdict == Put; {
	case is && !there:
		s.keys.add(1)
	case there && !is:
		s.keys.add(-1)
	}
	if verdict != Put {
		expires = 0
	}
	if was == expires {
		return
	}
	if was != 0 {
		s.store.census.add(was, -1)
	}
	if expires != 0 {
		s.store.census.add(expires, 1)
	}
}
