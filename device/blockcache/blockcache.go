// Package blockcache caches blocks of a slow device in memory: a device.Device around another
// one, for repeated reads of the same blocks.
//
//	ssd, err := ssdtier.Open("data")
//	cached, err := blockcache.New(ssd, blockcache.Options{Capacity: 256 << 20})
//	store, err := kv.Open(kv.Options{Memory: 1 << 30, Device: device.NewTiered(redy, cached)})
//
// The capacity is part of a store's Options.Memory ([device.CacheMemory]): its log has so much
// less.
//
// It helps with
//   - values near the size of a block, or neighbouring records that are read together;
//   - a device of which every read is slow or costs money: a bucket, with blocks of 64 KiB,
//     or a file server.
//
// It does not help with
//   - small records at random addresses: of a block of 4 KiB one record of 24 bytes is used.
//     kv.Options.ReadCache caches the record alone, a hundred times as many in the same
//     memory;
//   - a device that reads any bytes at the speed of memory, as Redy does.
//
// The cache is a ristretto cache, keyed by the number of the block. A block is cached only when
// it cannot change any more: the log has grown past it, and every write to it or below it has
// ended. So no entry is out of date. Reads of many blocks at once, as of recovery and
// compaction, bypass the cache.
package blockcache

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/internal/progress"
	"github.com/redykv/redykv/internal/readcache"
	"github.com/redykv/redykv/internal/units"
)

// Options are the choices of a Cache.
type Options struct {
	// Capacity is the memory in bytes of the cache, at least MinCapacity.
	Capacity int64
	// Block is the unit of reads and of the cache in bytes, a power of two from 512 to
	// 4 MiB. Default: the device's Alignment, at least 4 KiB.
	Block int
}

// Limits and defaults of Options.
const (
	MinCapacity  = 1 << 20
	DefaultBlock = 4 << 10

	minBlock = 512
	maxBlock = 4 << 20
)

// maxBlocks is the largest number of blocks of a read that is cached.
const maxBlocks = 8

// overhead is the memory of a block beside its bytes: the entry, and its share of the counters.
const overhead = 256

// Cache is a device with a cache in front of it. It implements device.Device.
type Cache struct {
	device.Device // the device behind the cache
	opts          Options
	shift         uint
	blocks        *ristretto.Cache[uint64, []byte]
	round         atomic.Uint64 // counts Starts and refilled pieces: part of the keys

	// final is the address below which everything was written and is not written again.
	final  atomic.Int64
	mu     sync.Mutex // guards the fields below
	writes progress.Writes
	newest int64 // address of the newest write

	closeOnce    sync.Once
	hits, misses atomic.Uint64
}

// New puts a cache in front of a device, which it owns.
func New(dev device.Device, opts Options) (*Cache, error) {
	if opts.Block == 0 {
		opts.Block = max(DefaultBlock, dev.Alignment())
	}
	if opts.Block < minBlock || opts.Block > maxBlock || opts.Block&(opts.Block-1) != 0 {
		return nil, fmt.Errorf("blockcache: block of %d bytes, want a power of two from %d to %d", opts.Block, minBlock, maxBlock)
	}
	if opts.Capacity < max(MinCapacity, 16*int64(opts.Block)) {
		return nil, fmt.Errorf("blockcache: capacity of %d bytes, want at least %v and 16 blocks of %d bytes",
			opts.Capacity, units.Size(MinCapacity), opts.Block)
	}
	c := &Cache{Device: dev, opts: opts}
	for 1<<c.shift < opts.Block {
		c.shift++
	}
	entries := opts.Capacity / int64(opts.Block+overhead)
	var err error
	c.blocks, err = readcache.NewRistretto(entries, opts.Capacity, nil)
	if err != nil {
		return nil, fmt.Errorf("blockcache: %w", err)
	}
	return c, nil
}

// numberBits is the number of bits of a key for the number of a block; the round has the rest.
// Addresses of a log have 48 bits, and offsets in a block at least 9.
const numberBits = 40

// key returns the key of a block in this round.
func (c *Cache) key(number int64) uint64 {
	return uint64(number) | c.round.Load()<<numberBits
}

// Start implements device.Device. It invalidates what was cached.
func (c *Cache) Start(tail int64) error { return c.start(tail, device.Device.Start) }

// Prepare implements device.Preparer.
func (c *Cache) Prepare(tail int64) error { return c.start(tail, device.Prepare) }

func (c *Cache) start(tail int64, start func(device.Device, int64) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.final.Store(0)
	c.round.Add(1)
	if err := start(c.Device, tail); err != nil {
		return err
	}
	c.newest = max(tail, 0)
	c.writes.Reset(c.newest)
	c.final.Store(c.newest)
	return nil
}

// Truncate implements device.Device.
func (c *Cache) Truncate(begin int64) error {
	if err := c.Device.Truncate(begin); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes.Truncate(begin)
	return nil
}

// begin adds a pending write.
func (c *Cache) begin(w progress.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes.Begin(w)
	c.newest = w.From
}

// end records the end of a write. A log writes the block in which it ends again, at or above
// the address of its newest write: everything below that is final, except pending writes and
// failed ones. A write below is of a refill ([device.Tiered]), of what the device lacked: no block
// that was read before it ended is used any more, also of the others.
func (c *Cache) end(w progress.Span, succeeded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.From < c.final.Load() {
		c.round.Add(1)
	}
	if c.writes.End(w, succeeded) {
		c.final.Store(max(c.final.Load(), min(c.newest, c.writes.Settled())))
	}
}

// Parts implements device.Composite.
func (c *Cache) Parts() []any { return []any{c.Device} }

// CacheMemory implements device.CacheUser.
func (c *Cache) CacheMemory() int64 { return c.opts.Capacity + device.CacheMemory(c.Device) }

// Metrics are the counters of a Cache since it was made, and its memory.
type Metrics struct {
	Hits   uint64 // reads that it answered
	Misses uint64 // reads that it passed to the device, in blocks
	Bytes  int64  // in use, of
	Memory int64  // Options.Capacity
}

// Metrics returns the metrics. Reads that bypass the cache are neither hits nor misses.
func (c *Cache) Metrics() Metrics {
	return Metrics{
		Hits: c.hits.Load(), Misses: c.misses.Load(),
		Bytes: c.opts.Capacity - c.blocks.RemainingCost(), Memory: c.opts.Capacity,
	}
}

// Close implements device.Device.
func (c *Cache) Close() error {
	c.closeOnce.Do(c.blocks.Close)
	return c.Device.Close()
}

// span returns the blocks of a read of n bytes: the number of the first and how many. It is
// not ok if the read bypasses the cache.
func (c *Cache) span(n int, addr int64) (first int64, blocks int, ok bool) {
	if n < 1 || addr < 0 || addr > math.MaxInt64-int64(n)-int64(c.opts.Block) {
		return 0, 0, false
	}
	first = addr >> c.shift
	end := (addr+int64(n)-1)>>c.shift + 1
	ok = end-first <= maxBlocks && end < 1<<numberBits && end<<c.shift <= c.final.Load() && first<<c.shift >= c.Begin()
	return first, int(end - first), ok
}

// get copies the bytes of a read from its blocks, if all are cached.
func (c *Cache) get(dst []byte, addr, first int64, blocks int) bool {
	skip := int(addr - first<<c.shift)
	for i := range blocks {
		block, ok := c.blocks.Get(c.key(first + int64(i)))
		if !ok {
			return false
		}
		dst = dst[copy(dst, block[skip:]):]
		skip = 0
	}
	return true
}

// put caches blocks that were read from first on. It may keep buf.
func (c *Cache) put(buf []byte, first int64, round uint64) {
	if round != c.round.Load() {
		return
	}
	block := c.opts.Block
	for i := 0; i*block < len(buf); i++ {
		one := buf[i*block:][:block:block]
		if len(buf) > block {
			one = slices.Clone(one)
		}
		c.blocks.Set(uint64(first+int64(i))|round<<numberBits, one, int64(block+overhead))
	}
}

// errLost is the error of a completion of an operation that the queue does not have.
var errLost = errors.New("blockcache: completion of an unknown operation")
