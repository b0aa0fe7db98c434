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
	"math/bits"
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

// Classes returns the classes that have had keys.
func (c *Counters) Classes() (classes []uint8) {
	for class := range c.All() {
		classes = append(classes, class)
	}
	return classes
}

// Counter counts the keys of a class that expire. Times are milliseconds of Unix time.
type Counter struct {
	mu sync.Mutex // guards the next fields
	// ends are the keys that have not expired, by the slice of their expiry. Slices up to past
	// are not in it; their keys are counted in gone.
	ends  block
	past  int64
	gone  int64
	ended int64 // keys that have expired ever
	// merged are the slices of Restore, in order. A key that was counted before is in the first of
	// them that is not before its expiry.
	merged []int64
}

// New returns a counter of no keys.
func New() *Counter { return new(Counter) }

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
	if slice > c.past && c.ends.at(slice) <= 0 { // it was counted before Restore
		at, _ := slices.BinarySearch(c.merged, slice)
		for ; at < len(c.merged); at++ {
			if merged := c.merged[at]; c.ends.at(merged) > 0 {
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
	c.ends.add(slice, n)
}

// Expired returns how many of the keys that were ever counted have expired, and how many
// others will.
func (c *Counter) Expired(now int64) (gone, timed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(now)
	return c.gone, c.ends.n
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
	n := c.ends.take(past)
	c.gone += n
	c.ended += n
	c.past = past
}

// Clear forgets all keys.
func (c *Counter) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends, c.gone, c.merged = block{}, 0, nil
}

// nearSlices is how many slices ahead State keeps one by one. Farther ones it merges: two
// into one up to twice as far, and so on. So a key expires later by up to a thirty-second.
const nearSlices = 64

// mergedSlice returns the slice in which State counts the keys of a slice.
func (c *Counter) mergedSlice(slice int64) int64 {
	far := bits.Len64(uint64(max(0, slice-c.past-1)) / nearSlices)
	return (slice + 1<<far - 1) >> far << far
}

// State returns the counter for a manifest; keys is the number of keys of the class ever counted,
// less those removed. However many slices have keys, it looks at a number of blocks that grows with
// the logarithm of the farthest: the caller is in a barrier.
func (c *Counter) State(keys, now int64) manifest.ClassCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(now)
	k := manifest.ClassCount{Keys: keys - c.gone}
	last := int64(0)
	c.ends.merge(c.mergedSlice, func(merged, n int64) {
		if merged == last {
			k.Ends[len(k.Ends)-1] += n
			return
		}
		k.Ends = append(k.Ends, merged-last, n)
		last = merged
	})
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
