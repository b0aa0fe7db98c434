package kv

import (
	"errors"
	"fmt"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/readcache"
)

// shares divides memory between the log and the read cache.
func (o *Options) shares(memory int64) (forLog, forCache int64) {
	forCache = int64(float64(memory) * o.ReadCache)
	return memory - forCache, forCache
}

// largeShare is the share of a read cache for large records in a store where
// lengths vary and records may be large.
const largeShare = 0.25

// openCache makes the read cache, or none.
func openCache(capacity int64, layout hlog.Layout, o *Options) (*readcache.Cache, error) {
	if capacity == 0 {
		return nil, nil
	}
	options := readcache.Options{Capacity: capacity}
	switch {
	case layout.Fixed():
		options.RecordSize = layout.Size(o.KeySize, o.ValueSize, false)
		if options.RecordSize > readcache.DefaultThreshold {
			options.LargeShare = 1
		}
	case o.PageSize == 0 || o.PageSize > readcache.DefaultThreshold:
		options.LargeShare = largeShare
	}
	cache, err := readcache.New(options)
	if err != nil {
		return nil, fmt.Errorf("share %g of memory: %w", o.ReadCache, err)
	}
	return cache, nil
}

// freeMemory gives index and read cache back.
func (st *Store) freeMemory() error {
	err := st.index.free()
	if st.cache != nil {
		err = errors.Join(err, st.cache.Free())
	}
	return err
}

func (st *Store) addCacheTo(m *Metrics) {
	if st.cache == nil {
		return
	}
	c := st.cache.Metrics()
	m.CacheEntries, m.CacheBytes, m.CacheBudget = c.Entries, c.Bytes, c.Capacity
	m.CacheAdded, m.CacheEvicted = c.Added, c.Evicted
}
