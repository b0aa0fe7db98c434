// Package readcache caches records that were fetched from devices.
//
// The key of a record is its log address. The bytes at an address of the log never change, and
// an updated record has another address, so entries are never stale and need no invalidation:
// the index gives the address, and the address is the key.
//
// Records up to a threshold are in a table outside the Go heap (table.go, shard.go): a hit
// costs two cache lines, an entry some ten bytes beside the record, and the garbage collector
// scans none of it. Larger records, where copying dominates the cost, are in a ristretto cache
// (large.go).
//
// A full cache admits a record on its second fetch (ghost.go), so a scan, which fetches every
// record once, evicts nothing.
package readcache

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/internal/units"
)

// Options configure a cache.
type Options struct {
	// Capacity is the cache's whole memory in bytes, at least MinCapacity.
	Capacity int64

	// RecordSize is the expected size of a record in bytes, which determines the layout of the
	// table. Default 128. If the mean proves very different when the table is full, the layout
	// is changed.
	RecordSize int

	// Threshold is the size in bytes above which a record is large. Default DefaultThreshold,
	// at most MaxThreshold. Small caches use a lower threshold, so that no record takes more
	// than a fraction of a shard.
	Threshold int

	// LargeShare, from 0 to 1, is the share of Capacity for large records. It takes effect
	// when the first one is offered. With 0 large records are not cached.
	LargeShare float64
}

const (
	// MinCapacity is the smallest valid capacity.
	MinCapacity = 1 << 10
	// DefaultThreshold is the size at which the table and ristretto are equally fast
	// (docs/readcache.md).
	DefaultThreshold = 16 << 10
	// MaxThreshold is the largest length that the table can represent.
	MaxThreshold = 256 << 10

	defaultRecordSize = 128
)

// Cache holds records by address. All methods are safe for concurrent use.
type Cache struct {
	small atomic.Pointer[table] // nil if there are no small records
	large large

	reshaping atomic.Bool // a reshape is running
	wantLarge atomic.Bool // a large record was offered

	opts Options // as given to New

	mu         sync.Mutex // serializes changes of shape and Free; guards the fields below
	capacity   int64
	recordSize int
	freed      bool
}

// New returns an empty cache.
func New(o Options) (*Cache, error) {
	o.RecordSize = cmp.Or(o.RecordSize, defaultRecordSize)
	o.Threshold = cmp.Or(o.Threshold, DefaultThreshold)
	switch {
	case o.RecordSize < 0:
		return nil, fmt.Errorf("readcache: record size %d, want at least 1", o.RecordSize)
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

// Prefetch prefetches the first cache line that Get of addr reads.
func (c *Cache) Prefetch(addr int64) {
	if t := c.small.Load(); t != nil {
		t.prefetch(addr)
	}
}

// PrefetchRecord prefetches the record at addr, if it is cached. It reads the line that
// Prefetch loads, which should have been called some time before.
func (c *Cache) PrefetchRecord(addr int64) {
	if t := c.small.Load(); t != nil {
		t.prefetchRecord(addr)
		runtime.KeepAlive(t)
	}
}

// Get appends the record at addr to dst and reports whether it is cached. Nothing is allocated
// if the record fits into dst.
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

// Add offers the record at addr, a multiple of 8, which was just fetched. The cache keeps a
// copy or declines: if the record is too large, was not fetched before recently, or another
// goroutine is adding to the same shard.
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

// Resize changes the memory of the cache while it is in use. It keeps as many small records as
// fit, and no large ones; records added during the call may be lost. When it returns, memory
// beyond the new capacity is released. During the call old and new memory together take at
// most the larger of the two plus a shard, which is a 64th or at most 2 MiB. After an error
// nothing has changed.
func (c *Cache) Resize(capacity int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resize(capacity)
}

// reshape changes the layout in the background, for another mean size of records or for the
// first large ones.
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
		// An error means that the cache was freed or memory is exhausted.
		_ = c.resize(c.capacity)
	}()
}

// resize is Resize. The caller holds mu.
func (c *Cache) resize(capacity int64) error {
	if capacity < MinCapacity || capacity > math.MaxInt64/2 {
		return fmt.Errorf("readcache: capacity of %v, want at least %v", units.Size(capacity), units.Size(MinCapacity))
	}
	if c.freed {
		return fmt.Errorf("readcache: resize of a freed cache")
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

// Metrics describe the contents of a cache and the results of Add.
type Metrics struct {
	Capacity int64 // bytes
	Bytes    int64 // bytes of cached records
	Entries  int64

	// Records that were admitted; declined at their first fetch or for their size; dropped
	// because of contention; evicted.
	Added, Declined, Dropped, Evicted uint64
}

// Metrics returns the metrics. The counts restart at 0 when the layout changes.
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

// Free releases the memory. The cache is empty afterwards.
func (c *Cache) Free() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed = true
	c.capacity = 0
	c.large.free()
	return c.small.Swap(nil).retire(nil)
}
