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
	// memory is divided. Default 128. Should it turn out to be far off when the
	// table is full, the table is divided anew.
	RecordSize int

	// Threshold is the size in bytes above which a record is large. Default
	// DefaultThreshold, at most MaxThreshold. Small caches have a lower one:
	// no record takes more than a fraction of a shard.
	Threshold int

	// LargeShare, 0 to 1, is the share of Capacity for large records, from the
	// first one on that is offered. Without it they are not cached.
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

	reshaping atomic.Bool // somebody does
	wantLarge atomic.Bool // a large record was offered

	opts Options // fixed; what changes of it is below

	mu         sync.Mutex // one change of shape or Free at a time; guards the rest
	capacity   int64
	recordSize int
	freed      bool
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
	c := &Cache{opts: o, recordSize: o.RecordSize}
	c.wantLarge.Store(o.LargeShare == 1)
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

// Get appends the record at addr to dst and reports whether it is there. The copy
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
		mean, misfit := t.add(addr, record)
		runtime.KeepAlive(t)
		if misfit {
			c.reshape(mean)
		}
		return
	}
	if !c.wantLarge.Load() && len(record) > c.opts.Threshold && c.opts.LargeShare > 0 && c.wantLarge.CompareAndSwap(false, true) {
		c.reshape(0)
		return
	}
	c.large.add(addr, record)
}

// Resize changes the memory of the cache while it is in use. It keeps as many
// small records as have room, and no large ones; records added meanwhile may get
// lost. When it returns, memory beyond the new capacity has been given back; in
// between old and new take up to the larger of the two and a shard, which is a
// 64th or at most 2 MiB. After an error nothing has changed.
func (c *Cache) Resize(capacity int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resize(capacity)
}

// reshape divides the capacity anew, in the background, for records of another
// mean size or for the first large ones.
func (c *Cache) reshape(recordSize int) {
	if !c.reshaping.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer c.reshaping.Store(false)
		c.mu.Lock()
		defer c.mu.Unlock()
		if recordSize > 0 {
			c.recordSize = recordSize
		}
		// Freed meanwhile, or no memory for it: then it stays as it is.
		_ = c.resize(c.capacity)
	}()
}

// resize is Resize for callers that hold mu.
func (c *Cache) resize(capacity int64) error {
	if capacity < MinCapacity || capacity > math.MaxInt64/2 {
		return fmt.Errorf("readcache: capacity of %v, want at least %v", units.Size(capacity), units.Size(MinCapacity))
	}
	if c.freed {
		return fmt.Errorf("readcache: resizing a cache that was freed")
	}
	forLarge := int64(0)
	if c.wantLarge.Load() {
		forLarge = int64(float64(capacity) * c.opts.LargeShare)
	}
	var next *table
	if small := capacity - forLarge; small >= MinCapacity {
		var err error
		if next, err = newTable(small, c.recordSize, c.opts.Threshold); err != nil {
			return fmt.Errorf("readcache: %w", err)
		}
	}
	if err := c.large.resize(forLarge, c.opts.Threshold); err != nil {
		return fmt.Errorf("readcache: %w", err)
	}
	c.capacity = capacity
	return c.small.Swap(next).retire(next)
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

// Metrics says what the cache holds. Counts start anew with every change of its shape.
func (c *Cache) Metrics() Metrics {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := Metrics{Capacity: c.capacity}
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
	c.capacity = 0
	c.large.free()
	return c.small.Swap(nil).retire(nil)
}
