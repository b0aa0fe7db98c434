// Package keycount is a store's key counter, as far as it concerns time: how many of the
// keys that were counted have expired.
//
// A session counts a key at the moment when a change of it takes effect. Nothing happens
// at the moment when a key expires. So keys that expire are also counted by the time of
// their expiry, in slices of about a second; a sum over the slices that are past gives the
// keys that have expired.
package keycount

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/kv/internal/manifest"
)

// SliceBits is the length of a slice of time, as a power of two milliseconds.
const SliceBits = 10

// Classes is the number of classes of keys.
const Classes = 1 << 8

// Counters are the counters of a store, one for each class of keys. A class gets its counter
// with its first key.
type Counters struct {
	// Since is when the keys were counted by a scan, or 0. Keys that had expired by then were
	// not counted. It is set before the counters are used.
	Since int64

	of [Classes]atomic.Pointer[Counter]
}

// Get returns the counter of a class, or nil if the class has had no key.
func (c *Counters) Get(class uint8) *Counter { return c.of[class].Load() }

// Of returns the counter of a class that has, or had, a key.
func (c *Counters) Of(class uint8) *Counter {
	at := &c.of[class]
	for {
		if counter := at.Load(); counter != nil {
			return counter
		}
		at.CompareAndSwap(nil, New())
	}
}

// All returns the counters of the classes that have had keys.
func (c *Counters) All() iter.Seq2[uint8, *Counter] {
	return func(yield func(uint8, *Counter) bool) {
		for class := range c.of {
			if counter := c.of[class].Load(); counter != nil && !yield(uint8(class), counter) {
				return
			}
		}
	}
}

// Counter counts the keys of a class that expire. Times are milliseconds of Unix time.
type Counter struct {
	mu sync.Mutex // guards the next fields
	// ends are the numbers of keys that expire in each slice of time, in ends[0], and in each
	// block of 64 to the power of i slices, in ends[i]; so the sum of many slices takes few
	// lookups. A block ends with a multiple of its length, as the slices that State merges do.
	// Slices up to past are not in them; their keys are counted in gone.
	ends  [levels]map[int64]int64
	past  int64
	gone  int64
	timed int64 // the sum of ends[0]
	ended int64 // keys that have expired ever
	last  int64 // no slice behind it has had keys
	// merged are the slices of Restore, in order. A key that was counted before is in the first of
	// them that is not before its expiry.
	merged []int64
}

const (
	radixBits = 6 // log2 of the number of blocks in the next larger one
	levels    = 4 // the largest blocks are three days; each is one more update for each change
)

// New returns a counter of no keys.
func New() *Counter {
	c := new(Counter)
	c.Clear()
	return c
}

// sliceOf returns the first slice at whose beginning a key with that expiry has expired.
func sliceOf(expires int64) int64 { return (expires-1)>>SliceBits + 1 }

// Add counts one more key that expires at that time.
func (c *Counter) Add(expires int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addSlice(sliceOf(expires), 1)
}

// Remove counts one key less that expires at that time.
func (c *Counter) Remove(expires int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slice := sliceOf(expires)
	if slice > c.past && c.ends[0][blockOf(slice, 0)] <= 0 { // it was counted before Restore
		at, _ := slices.BinarySearch(c.merged, slice)
		for ; at < len(c.merged); at++ {
			if merged := c.merged[at]; c.ends[0][blockOf(merged, 0)] > 0 {
				slice = merged
				break
			}
		}
	}
	c.addSlice(slice, -1)
}

func (c *Counter) addSlice(slice, n int64) {
	if slice <= c.past {
		c.gone += n
		return
	}
	for i, ends := range c.ends {
		block := blockOf(slice, i)
		if ends[block] += n; ends[block] == 0 {
			delete(ends, block)
		}
	}
	c.timed += n
	c.last = max(c.last, slice)
}

// blockOf returns the block of 64 to the power of i slices in which a slice is.
func blockOf(slice int64, i int) int64 { return (slice - 1) >> (i * radixBits) }

// sum returns the number of keys that expire in the slices from first to last.
func (c *Counter) sum(first, last int64) (n int64) {
	for first <= last {
		if top := c.ends[levels-1]; (last-first)>>((levels-1)*radixBits) > int64(len(top)) {
			return n + c.sumTop(first, last)
		}
		i := levels - 1
		for i > 0 && ((first-1)&(1<<(i*radixBits)-1) != 0 || first+1<<(i*radixBits)-1 > last) {
			i--
		}
		n += c.ends[i][blockOf(first, i)]
		first += 1 << (i * radixBits)
	}
	return n
}

// sumTop is sum for slices of more blocks of the largest length than have keys.
func (c *Counter) sumTop(first, last int64) (n int64) {
	const length = 1 << ((levels - 1) * radixBits)
	for block, all := range c.ends[levels-1] {
		switch begin, end := block*length+1, (block+1)*length; {
		case first <= begin && end <= last:
			n += all
		case first <= end && begin <= last:
			n += c.sum(max(first, begin), min(last, end))
		}
	}
	return n
}

// Expired returns how many of the keys that were ever counted have expired, and how many
// others will.
func (c *Counter) Expired(now int64) (gone, timed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(now)
	return c.gone, c.timed
}

// Ended returns how many keys have expired while they were counted, whatever was written to them
// since.
func (c *Counter) Ended(now int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(now)
	return c.ended
}

// expire moves the keys of slices that have passed to gone.
func (c *Counter) expire(now int64) {
	past := now >> SliceBits
	if past <= c.past {
		return
	}
	before := c.past
	move := func(slice, n int64) {
		c.addSlice(slice, -n)
		c.gone += n
		c.ended += n
	}
	if past-before < int64(len(c.ends[0])) {
		for slice := before + 1; slice <= past; slice++ {
			if n := c.ends[0][blockOf(slice, 0)]; n != 0 {
				move(slice, n)
			}
		}
	} else { // a long time has passed, or there are few slices
		for block, n := range c.ends[0] {
			if block < past {
				move(block+1, n)
			}
		}
	}
	c.past = past
}

// Clear forgets all keys.
func (c *Counter) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.ends {
		c.ends[i] = make(map[int64]int64)
	}
	c.gone, c.timed, c.last, c.merged = 0, 0, 0, nil
}

// nearSlices is how many slices ahead State keeps one by one. Farther ones it merges: two
// into one up to twice as far, and so on. So a key expires later by up to a thirty-second.
const nearSlices = 64

// State returns the counter for a manifest; keys is the number of keys of the class ever counted,
// less those removed. It looks up a few sums, however many slices have keys: the caller is in a
// barrier.
func (c *Counter) State(keys, now int64) manifest.ClassCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(now)
	k := manifest.ClassCount{Keys: keys - c.gone}
	last, first := int64(0), c.past+1
	for far := 0; first <= c.last; far++ {
		for end := min(c.past+nearSlices<<far, c.last+1); first < end; {
			// The keys of a merged slice expire in it or before.
			slice := min((first+1<<far-1)>>far<<far, end-1)
			if n := c.sum(first, slice); n != 0 {
				k.Ends = append(k.Ends, slice-last, n)
				last = slice
			}
			first = slice + 1
		}
	}
	return k
}

// Restore is the inverse of State. It adds to the keys that are counted already.
func (c *Counter) Restore(k manifest.ClassCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slice := int64(0)
	for i := 0; i+1 < len(k.Ends); i += 2 {
		slice += k.Ends[i]
		c.addSlice(slice, k.Ends[i+1])
		c.merged = append(c.merged, slice)
	}
	slices.Sort(c.merged) // that of several classes, in a store that does not tell them apart
}
