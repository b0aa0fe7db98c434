// Package keycount is a store's key counter, as far as it concerns time: how many of the
// keys that were counted have expired.
//
// A session counts a key at the moment when a change of it takes effect. Nothing happens
// at the moment when a key expires. So keys that expire are also counted by the time of
// their expiry, in slices of about a second; a sum over the slices that are past gives the
// keys that have expired.
package keycount

import (
	"maps"
	"math/bits"
	"slices"
	"sync"

	"github.com/redykv/redykv/kv/internal/manifest"
)

// SliceBits is the length of a slice of time, as a power of two milliseconds.
const SliceBits = 10

// Counter counts the keys that expire. Times are milliseconds of Unix time.
type Counter struct {
	// Since is when the keys were counted by a scan, or 0. Keys that had expired by then were
	// not counted. It is set before the counter is used.
	Since int64

	mu sync.Mutex // guards the next fields
	// ends is the number of keys that expire in each slice of time. Slices up to past are
	// not in it; their keys are counted in gone.
	ends  map[int64]int64
	past  int64
	gone  int64
	timed int64 // the sum of ends
}

// New returns a counter of no keys.
func New() *Counter { return &Counter{ends: make(map[int64]int64)} }

// sliceOf returns the first slice at whose beginning a key with that expiry has expired.
func sliceOf(expires int64) int64 { return (expires-1)>>SliceBits + 1 }

// Add counts n more keys that expire at that time.
func (c *Counter) Add(expires, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addSlice(sliceOf(expires), n)
}

func (c *Counter) addSlice(slice, n int64) {
	if slice <= c.past {
		c.gone += n
		return
	}
	if c.ends[slice] += n; c.ends[slice] == 0 {
		delete(c.ends, slice)
	}
	c.timed += n
}

// Expired returns how many of the keys that were ever counted have expired, and how many
// others will.
func (c *Counter) Expired(now int64) (gone, timed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if past := now >> SliceBits; past > c.past {
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

// Clear forgets all keys.
func (c *Counter) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.ends)
	c.gone, c.timed = 0, 0
}

// nearSlices is how many slices ahead State keeps one by one. Farther ones it merges: two
// into one up to twice as far, and so on. So a key expires later by up to a thirty-second.
const nearSlices = 64

// State returns the counter for a manifest; keys is the number of keys ever counted, less
// those removed.
func (c *Counter) State(keys, now int64) *manifest.KeyCount {
	gone, _ := c.Expired(now)
	c.mu.Lock()
	merged := make(map[int64]int64)
	for slice, n := range c.ends {
		if far := bits.Len64(uint64((slice - c.past) / nearSlices)); far > 0 {
			slice = (slice + 1<<far - 1) >> far << far
		}
		merged[slice] += n
	}
	c.mu.Unlock()
	k := &manifest.KeyCount{Keys: keys - gone, Since: c.Since}
	last := int64(0)
	for _, slice := range slices.Sorted(maps.Keys(merged)) {
		if n := merged[slice]; n != 0 {
			k.Ends = append(k.Ends, slice-last, n)
			last = slice
		}
	}
	return k
}

// Restore is the inverse of State, for a counter of no keys.
func (c *Counter) Restore(k *manifest.KeyCount) {
	c.Since = k.Since
	slice := int64(0)
	for i := 0; i+1 < len(k.Ends); i += 2 {
		slice += k.Ends[i]
		c.addSlice(slice, k.Ends[i+1])
	}
}
