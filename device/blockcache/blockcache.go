// Package blockcache keeps blocks of a slow device in memory: a device.Device around
// another one, for reads that come back to the same blocks.
//
//	ssd, err := ssdtier.Open("data")
//	cached, err := blockcache.New(ssd, blockcache.Options{Capacity: 256 << 20})
//	store, err := kv.Open(kv.Options{Memory: 1 << 30, Device: device.NewTiered(redy, cached)})
//
// A store counts the capacity in its Options.Memory, so that its log has that much
// less ([device.CacheMemory]).
//
// When it helps:
//   - Values near the size of a block, or neighbours that are read together: what comes
//     with a block is wanted.
//   - A device of which every read is slow or costs money: a bucket, with blocks of
//     64 KiB, or a file server.
//
// When it does not:
//   - Small records at random addresses. Of a block of 4 KiB one record of 24 bytes is
//     wanted; kv.Options.ReadCache keeps the record alone, and the same memory keeps a
//     hundred times as many.
//   - A device that reads any bytes at the speed of memory, as Redy does: it would read
//     more, to no avail.
//
// The cache is a ristretto one, keyed by the number of the block. A block is kept from
// the moment at which nothing of it can change any more: the log has gone on past it,
// and every write to it or below it has ended. So no entry is ever out of date. Reads of
// many blocks at once, as recovery and compaction make them, pass by.
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
	"github.com/redykv/redykv/internal/readcache"
	"github.com/redykv/redykv/internal/units"
)

// Options are the choices of a Cache.
type Options struct {
	// Capacity is the memory in bytes that the blocks and what belongs to them take,
	// MinCapacity at least.
	Capacity int64
	// Block is the unit of reads and of the cache in bytes, a power of two from 512
	// to 4 MiB. Default: the device's Alignment, 4 KiB at least.
	Block int
}

// Limits and defaults of Options.
const (
	MinCapacity  = 1 << 20
	DefaultBlock = 4 << 10

	minBlock = 512
	maxBlock = 4 << 20
)

// maxBlocks is how many blocks a read may touch that is to be cached.
const maxBlocks = 8

// overhead is what a block takes beside its bytes: the entry, and its share of the
// counters that admit.
const overhead = 256

// Cache is a device with a cache before it. It implements device.Device.
type Cache struct {
	device.Device // everything but what is done otherwise here
	opts          Options
	shift         uint
	blocks        *ristretto.Cache[uint64, []byte]
	round         atomic.Uint64 // counts Starts: part of the keys

	// final is an address: what lies below is never written again, and was.
	final atomic.Int64
	mu    sync.Mutex
	// writing are the addresses of the writes under way, and of those that failed.
	writing []int64
	newest  int64 // address of the highest write

	closeOnce    sync.Once
	hits, misses atomic.Uint64
}

// New puts a cache before a device, which it owns.
func New(dev device.Device, opts Options) (*Cache, error) {
	if opts.Block == 0 {
		opts.Block = max(DefaultBlock, dev.Alignment())
	}
	if opts.Block < minBlock || opts.Block > maxBlock || opts.Block&(opts.Block-1) != 0 {
		return nil, fmt.Errorf("blockcache: block of %d bytes, want a power of two from %d to %d", opts.Block, minBlock, maxBlock)
	}
	if opts.Capacity < max(MinCapacity, 16*int64(opts.Block)) {
		return nil, fmt.Errorf("blockcache: capacity of %d bytes, want %v and 16 blocks of %d at least",
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

// numberBits is what the number of a block has in a key; the round has the rest.
// Addresses of a log have 48 bits, a block 9 at least.
const numberBits = 40

// key is that of a block in this round.
func (c *Cache) key(number int64) uint64 {
	return uint64(number) | c.round.Load()<<numberBits
}

// Start implements device.Device. What was cached before is forgotten.
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
	c.writing = c.writing[:0]
	c.newest = max(tail, 0)
	c.final.Store(c.newest)
	return nil
}

// begin enters a write.
func (c *Cache) begin(addr int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = append(c.writing, addr)
	c.newest = max(c.newest, addr)
}

// end takes a write that has ended out. A log writes the block that it ends in once
// more, from the address on that its newest write has or a later one: what lies below
// is final, but for what is under way.
func (c *Cache) end(addr int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.writing, addr)
	if i < 0 {
		return // Start has forgotten it
	}
	last := len(c.writing) - 1
	c.writing[i] = c.writing[last]
	c.writing = c.writing[:last]
	final := c.newest
	for _, addr := range c.writing {
		final = min(final, addr)
	}
	c.final.Store(max(c.final.Load(), final))
}

// Parts implements device.Composite.
func (c *Cache) Parts() []any { return []any{c.Device} }

// CacheMemory implements device.CacheUser.
func (c *Cache) CacheMemory() int64 { return c.opts.Capacity + device.CacheMemory(c.Device) }

// Metrics are what a Cache has done since it was made, and what it has.
type Metrics struct {
	Hits   uint64 // reads that it answered
	Misses uint64 // reads that it asked the device for, in blocks
	Bytes  int64  // in use, of
	Memory int64  // Options.Capacity
}

// Metrics says what the cache has done. Reads that pass it by are neither hits nor
// misses.
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

// span is what a read of n bytes touches: blocks from first on, their address and
// their end. It is not ok if the read is none for the cache.
func (c *Cache) span(n int, addr int64) (first int64, blocks int, ok bool) {
	if n < 1 || addr < 0 || addr > math.MaxInt64-int64(n)-int64(c.opts.Block) {
		return 0, 0, false
	}
	first = addr >> c.shift
	end := (addr+int64(n)-1)>>c.shift + 1
	ok = end-first <= maxBlocks && end < 1<<numberBits && end<<c.shift <= c.final.Load() && first<<c.shift >= c.Begin()
	return first, int(end - first), ok
}

// get copies what is wanted from the blocks that a read touches, if all are there.
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

// put keeps blocks, read from first on. It may keep buf.
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

// errLost is what a completion is that the cache did not ask for.
var errLost = errors.New("blockcache: completion of no operation")
