// Package readcache keeps records that were fetched from devices in memory.
//
// A record is cached under its log address. What lies at an address of the log
// never changes, and an updated record has another address, so an entry is never
// stale and nothing has to be invalidated: the index leads to the address, the
// address to the cache.
//
// Records up to a threshold live in a table outside the Go heap (table.go,
// shard.go): a hit costs two cache lines, an entry some ten bytes beside the
// record, and the collector sees none of it. Larger ones, whose copy costs more
// than anything that the cache does, live in a ristretto cache (large.go).
//
// A record is admitted on its second fetch while the cache is full (ghost.go),
// so that a scan, which fetches everything once, pushes nothing out.
package readcache

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/internal/units"
)

// Options say how large a cache is and what it is for.
type Options struct {
	// Capacity is the cache's memory in bytes, everything counted. At least
	// MinCapacity.
	Capacity int64

	// RecordSize is the expected size of a record in bytes, by which the table's
	// memory is divided. Too large a guess leaves records without an entry, too
	// small a one wastes some 12 bytes for each missing record. Default 128.
	RecordSize int

	// Threshold is the size in bytes above which a record is large. Default
	// DefaultThreshold, at most MaxThreshold. Small caches have a lower one:
	// no record takes more than a fraction of a shard.
	Threshold int

	// LargeShare, 0 to 1, is the share of Capacity for large records. Without
	// it they are not cached.
	LargeShare float64
}

const (
	// MinCapacity is the least memory that a cache works with.
	MinCapacity = 1 << 10
	// DefaultThreshold is where docs/readcache.md finds the two halves alike.
	DefaultThreshold = 16 << 10
	// MaxThreshold bounds the lengths that the table can note.
	MaxThreshold = 256 << 10

	defaultRecordSize = 128
)

// Cache holds records by address. All methods are safe for concurrent use.
type Cache struct {
	small atomic.Pointer[table] // nil: none
	large large

	mu    sync.Mutex // one Resize or Free at a time; guards the rest
	opts  Options
	freed bool
}

// New makes an empty cache.
func New(o Options) (*Cache, error) {
	if o.RecordSize == 0 {
		o.RecordSize = defaultRecordSize
	}
	if o.Threshold == 0 {
		o.Threshold = DefaultThreshold
	}
	switch {
	case o.RecordSize < 0:
		return nil, fmt.Errorf("readcache: record size %d", o.RecordSize)
	case o.Threshold < 0 || o.Threshold > MaxThreshold:
		return nil, fmt.Errorf("readcache: threshold %d, want 1 to %d", o.Threshold, MaxThreshold)
	case !(o.LargeShare >= 0 && o.LargeShare <= 1):
		return nil, fmt.Errorf("readcache: share %g for large records, want 0 to 1", o.LargeShare)
	}
	c := &Cache{opts: o}
	if err := c.Resize(o.Capacity); err != nil {
		return nil, err
	}
	return c, nil
}

// Prefetch asks the processor for the cache line that Get of addr looks at
// first.
func (c *Cache) Prefetch(addr int64) {
	if t := c.small.Load(); t != nil {
		t.prefetch(addr)
	}
}

// PrefetchRecord asks for the record at addr, if it is there, some time after
// Prefetch: it looks at the line which that has asked for.
func (c *Cache) PrefetchRecord(addr int64) {
	if t := c.small.Load(); t != nil {
		t.prefetchRecord(addr)
		runtime.KeepAlive(t)
	}
}

// Get appends the record at addr to dst and says whether it is there. The copy
// is the caller's; nothing is allocated if it fits into dst.
func (c *Cache) Get(dst []byte, addr int64) ([]byte, bool) {
	if t := c.small.Load(); t != nil {
		out, ok := t.get(dst, addr)
		runtime.KeepAlive(t) // the table's memory is unmapped when t is collected
		if ok {
			return out, true
		}
	}
	return c.large.get(dst, addr)
}

// Add offers the record at addr, a multiple of 8, which was just fetched. The
// cache keeps a copy, or declines: the record has not been fetched before in a
// while, or is too large, or another goroutine is adding in the same place.
func (c *Cache) Add(addr int64, record []byte) {
	if addr <= 0 || addr&7 != 0 || addr>>addressBits != 0 || len(record) == 0 {
		return
	}
	if t := c.small.Load(); t != nil && len(record) <= t.maxRecord {
		t.add(addr, record)
		runtime.KeepAlive(t)
		return
	}
	c.large.add(addr, record)
}

// Resize changes the memory of the cache while it is in use. Of what it holds
// it keeps as much as has room; records added meanwhile may get lost. When it
// returns, memory beyond the new capacity has been given back; in between old
// and new take up to the larger of the two and a shard, at most 1/64 and 1 MiB.
// After an error nothing has changed.
func (c *Cache) Resize(capacity int64) error {
	if capacity < MinCapacity || capacity > math.MaxInt64/2 {
		return fmt.Errorf("readcache: capacity of %v, want at least %v", units.Size(capacity), units.Size(MinCapacity))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.freed {
		return fmt.Errorf("readcache: resizing a cache that was freed")
	}
	forLarge := int64(float64(capacity) * c.opts.LargeShare)
	var next *table
	if small := capacity - forLarge; small >= MinCapacity {
		var err error
		if next, err = newTable(small, c.opts.RecordSize, c.opts.Threshold); err != nil {
			return fmt.Errorf("readcache: %w", err)
		}
	}
	if err := c.large.resize(forLarge, c.opts.Threshold); err != nil {
		return fmt.Errorf("readcache: %w", err)
	}
	c.opts.Capacity = capacity
	old := c.small.Swap(next)
	return old.retire(next)
}

// Metrics is what a cache holds and what became of records offered to it.
type Metrics struct {
	Capacity int64 // bytes
	Bytes    int64 // of records cached
	Entries  int64

	// Records admitted; declined at their first fetch or for their size; not
	// admitted because of contention; pushed out.
	Added, Declined, Dropped, Evicted uint64
}

// Metrics says what the cache holds. Counts start anew with every Resize.
func (c *Cache) Metrics() Metrics {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := Metrics{Capacity: c.opts.Capacity}
	if t := c.small.Load(); t != nil {
		t.addTo(&m)
	}
	c.large.addTo(&m)
	return m
}

// Free gives the memory back. Whoever still uses the cache finds it empty.
func (c *Cache) Free() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed = true
	c.opts.Capacity = 0
	c.large.free()
	return c.small.Swap(nil).retire(nil)
}
