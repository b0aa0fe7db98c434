package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/readcache"
	"github.com/redykv/redykv/internal/units"
)

// shares divides memory between the log and the read cache, less what the device
// takes of it.
func (o *Options) shares(memory int64) (forLog, forCache int64) {
	if memory == 0 {
		return 0, 0
	}
	memory -= o.deviceCache
	forCache = int64(float64(memory) * o.ReadCache)
	return memory - forCache, forCache
}

// SetMemory changes Options.Memory while the store is in use. The log and the read cache
// keep their shares. SetMemory returns when the surplus has been given back to the system,
// which takes until the device has the pages and no checkpoint holds them. It changes
// nothing if the size is impossible, above Options.MaxMemory or too small for the log's
// pages or the cache, or if ctx ends before.
func (st *Store) SetMemory(ctx context.Context, bytes int64) error {
	if err := st.mayWait(); err != nil {
		return fmt.Errorf("kv: memory of %v: %w", units.Size(bytes), err)
	}
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
		return fmt.Errorf("kv: memory of %v, of which caches in the device take %v", units.Size(bytes), units.Size(cache))
	}
	forLog, forCache := st.opts.shares(bytes)
	if st.cache != nil && forCache < readcache.MinCapacity {
		return fmt.Errorf("kv: memory of %v leaves %v for the read cache, want at least %v",
			units.Size(bytes), units.Size(forCache), units.Size(readcache.MinCapacity))
	}
	// The log first: it may refuse, and nothing has changed then.
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

// largeShare is the share of a read cache for large records in a store where
// lengths vary, once there is one.
const largeShare = 0.25

// openCache makes the read cache, or none.
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
		return nil, fmt.Errorf("share %g of memory: %w", o.ReadCache, err)
	}
	return cache, nil
}

// unload gives back what a store has that is not open yet.
func (st *Store) unload() error {
	var errs []error
	for _, s := range st.pool.idle {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, st.log.Close(), st.freeMemory())...)
}

// freeMemory gives index and read cache back.
func (st *Store) freeMemory() error {
	st.stopGrowing()
	err := st.index.Load().Free()
	if st.cache != nil {
		err = errors.Join(err, st.cache.Free())
	}
	return err
}
