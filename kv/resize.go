package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/readcache"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv/internal/index"
)

// This file changes the sizes of an open store. GrowIndex, or a crowded index itself, starts
// the growth of the index, which kv/internal/index carries out; SetMemory changes the memory
// of the log and of the read cache.

// ErrIndexFull means that the store holds many times the keys that its index was made for, and
// that the index cannot grow: Options.FixedIndex is set, or there is no memory. Open the store
// again with a larger Options.Records.
var ErrIndexFull = index.ErrFull

// IndexMemory returns the number of bytes of the index of a store that was opened for that
// many records and holds them.
func IndexMemory(records int64) int64 { return index.Memory(records) }

// newIndex returns an empty index of the size in the options, or of bits if that is larger.
func (st *Store) newIndex(bits int) (*index.Table, error) {
	bits = max(bits, st.ownBits())
	t, err := index.New(bits, bits, st.crowd())
	if err != nil {
		return nil, fmt.Errorf("%w; Options.Records is %d", err, st.opts.Records)
	}
	return t, nil
}

// ownBits returns the size of the index according to the options.
func (st *Store) ownBits() int {
	if st.opts.indexBits != 0 {
		return st.opts.indexBits
	}
	return index.Bits(st.opts.Records)
}

// crowd returns the function that a crowded table calls.
func (st *Store) crowd() func() {
	if st.opts.FixedIndex {
		return nil
	}
	return st.growSoon
}

// GrowIndex doubles the index while operations go on. The index takes about 30 bytes for each
// key that it then has room for. An index grows by itself when there are many more keys than
// it was made for; GrowIndex is for callers that expect more keys. If ctx ends before the
// growth begins, the index is unchanged; a growth that has begun is completed. The index can
// double 14 times before the store must be opened again.
func (st *Store) GrowIndex(ctx context.Context) error {
	if err := st.grow(ctx); err != nil {
		return fmt.Errorf("kv: growing the index: %w", err)
	}
	return nil
}

// growSoon starts growing the index in the background, unless it is growing.
func (st *Store) growSoon() {
	if !st.growing.CompareAndSwap(false, true) {
		return
	}
	st.background.Go(func() {
		defer st.growing.Store(false)
		for st.index.Load().Crowded() && st.growCrowded() {
		}
	})
}

// growCrowded doubles a crowded index, and returns false if it cannot.
func (st *Store) growCrowded() bool {
	t := st.index.Load()
	err := st.grow(context.Background())
	if err == nil {
		return true
	}
	if !errors.Is(err, ErrClosed) && t.CannotGrow(err) {
		st.opts.Logger.Warn("the index cannot grow", "buckets", t.Mask()+1, "err", err)
		st.failed("growing the index", err)
	}
	return false
}

// grow doubles the index. The holder of st.resizing keeps the table from changing.
func (st *Store) grow(ctx context.Context) error {
	if err := lock(ctx, &st.resizing); err != nil {
		return err
	}
	defer st.resizing.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if st.isClosed() {
		return ErrClosed
	}
	old := st.index.Load()
	next, err := old.Double()
	if err != nil {
		return err
	}
	begun, info := time.Now(), GrowthInfo{Before: int64(old.Mask() + 1), After: int64(next.Mask() + 1)}
	st.opts.Events.IndexGrowthBegin(info)
	old.MoveTo(next, st.log.Begin())
	st.index.Store(next)
	st.epoch.Wait(st.epoch.Bump())
	st.count(func(m *Metrics) { m.Index.Growths++ })
	info.Duration = time.Since(begun)
	st.opts.Events.IndexGrowthEnd(info)
	return old.Free()
}

// indexBits returns the size of the index, or the size that it is growing to. The store must be
// opened with at least that many bits, since each chain of the log holds keys that share that
// many bits of their hashes. It must be read after the tail of the log that will be opened.
func (st *Store) indexBits() int {
	t := st.index.Load()
	if next := t.Next(); next != nil {
		t = next
	}
	return t.Bits()
}

// shares divides memory, less the share of the device, between the log and the read cache.
func (o *Options) shares(memory int64) (forLog, forCache int64) {
	if memory == 0 {
		return 0, 0
	}
	memory -= o.deviceCache
	forCache = int64(float64(memory) * o.ReadCache)
	return memory - forCache, forCache
}

// SetMemory changes Options.Memory while the store is in use. The log and the read cache keep
// their shares. SetMemory returns when the surplus has been returned to the system; before,
// the pages must have been written to the device and released by checkpoints. It changes
// nothing if the size is above Options.MaxMemory or too small for the log's pages or the
// cache, or if ctx ends first.
func (st *Store) SetMemory(ctx context.Context, bytes int64) error {
	if err := lock(ctx, &st.sizing); err != nil {
		return fmt.Errorf("kv: memory of %v: waiting for another change: %w", units.Size(bytes), err)
	}
	defer st.sizing.Unlock()
	if st.isClosed() {
		return ErrClosed
	}
	if most := st.opts.MaxMemory; most != 0 && bytes > most {
		return fmt.Errorf("kv: memory of %v: the store was opened for at most %v", units.Size(bytes), units.Size(most))
	}
	if cache := st.opts.deviceCache; cache > 0 && bytes <= cache {
		return fmt.Errorf("kv: memory of %v: caches in the device take %v of it, and nothing is left for the log", units.Size(bytes), units.Size(cache))
	}
	forLog, forCache := st.opts.shares(bytes)
	if st.cache != nil && forCache < readcache.MinCapacity {
		return fmt.Errorf("kv: memory of %v leaves %v for the read cache, want at least %v",
			units.Size(bytes), units.Size(forCache), units.Size(readcache.MinCapacity))
	}
	// The log is resized first: if it refuses, nothing has changed.
	before, start := st.log.Budget(), time.Now()
	if err := st.log.Resize(ctx, forLog); err != nil {
		return fmt.Errorf("kv: memory of %v: %w", units.Size(bytes), err)
	}
	info := MemoryInfo{Before: before, After: st.log.Budget()}
	if st.cache != nil {
		info.Before += st.cache.Metrics().Capacity
		if err := st.cache.Resize(forCache); err != nil {
			return errors.Join(fmt.Errorf("kv: memory of %v: %w", units.Size(bytes), err), st.log.Resize(context.Background(), before))
		}
		info.After += st.cache.Metrics().Capacity
	}
	info.Duration = time.Since(start)
	st.opts.Events.MemoryResized(info)
	return nil
}

// largeShare is the share of the read cache for large records, in a store where lengths vary.
const largeShare = 0.25

// openCache makes the read cache. It returns nil if capacity is 0.
func openCache(capacity int64, layout hlog.Layout, o *Options) (*readcache.Cache, error) {
	if capacity == 0 {
		return nil, nil
	}
	options := readcache.Options{Capacity: capacity, LargeShare: largeShare}
	if layout.Fixed() {
		options.LargeShare = 0
		if options.RecordSize = layout.Size(o.KeySize, o.ValueSize, false); options.RecordSize > readcache.DefaultThreshold {
			options.LargeShare = 1
		}
	}
	cache, err := readcache.New(options)
	if err != nil {
		return nil, fmt.Errorf("read cache of a share of %g of memory: %w", o.ReadCache, err)
	}
	return cache, nil
}

// unload frees the memory of a store that failed to open. It waits for the reads that a scan gave up.
func (st *Store) unload() error {
	st.mu.Lock()
	for st.pool.settling > 0 {
		st.pool.settled.Wait()
	}
	idle := st.pool.idle
	st.pool.idle = nil
	st.mu.Unlock()
	var errs []error
	for _, s := range idle {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, st.log.Close(), st.freeMemory())...)
}

// freeMemory frees the index, when it does not grow any more, and the read cache. The store is
// marked closed or was not opened, and has no sessions.
func (st *Store) freeMemory() error {
	st.background.Wait()
	st.resizing.Lock() // a later GrowIndex finds the store closed
	defer st.resizing.Unlock()
	err := st.index.Load().Free()
	if st.cache != nil {
		err = errors.Join(err, st.cache.Free())
	}
	return err
}
