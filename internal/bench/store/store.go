package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// coldFactor is the ratio of a cold store's log to its memory.
const coldFactor = 6

// slack returns the memory in excess of the log, so that no record leaves the mutable
// region. That region is 0.9 of memory, and a value of more than a word is copied to the
// tail once its record has used up its some hundred versions. Unused memory is never
// touched.
func slack(s *Spec) int64 {
	const copied = 64 << 20 // a second, when values are written as fast as memory allows
	writing := time.Duration(0)
	for _, op := range s.Ops {
		if op != Read && s.ValueSize > 8 {
			writing += s.Duration * time.Duration(len(s.Distributions)*len(s.Modes)*len(s.Threads))
		}
	}
	return s.logBytes()/4 + 64<<20 + int64(min(copied*writing.Seconds(), 1<<36))
}

// openStore makes and loads the store of a run. The caller closes it.
func openStore(ctx context.Context, s *Spec, progress bench.Progress) (*kv.Store, error) {
	opts := kv.Options{
		Device:     device.NewNull(), // nothing is written before the store is closed
		Memory:     s.logBytes() + slack(s),
		Records:    s.Records,
		QueueDepth: s.Depth,
	}
	if s.Cold {
		opts.Device = device.NewMemory()
		opts.Memory = max(s.logBytes()/coldFactor, 4*int64(coldPage(s)))
		opts.PageSize = coldPage(s)
		opts.ReadCache = s.ReadCache
	}
	if !s.Variable {
		opts.KeySize, opts.ValueSize = ycsb.KeySize, s.ValueSize
	}
	store, err := kv.Open(opts)
	if err != nil {
		return nil, errors.Join(err, opts.Device.Close())
	}
	progress.Begin("load", s.Records)
	err = record.Load(ctx, store, s.Records, s.ValueSize, runtime.GOMAXPROCS(0), progress)
	if err != nil {
		err = fmt.Errorf("storebench: loading: %w", err)
	} else if s.Cold {
		if err = store.Commit(ctx); err != nil { // pages being written would be read from memory
			err = fmt.Errorf("storebench: committing what was loaded: %w", err)
		}
	}
	progress.End()
	if err == nil {
		err = inPlace(store, s)
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// coldPage returns a page size that is small enough for the cold store's memory to hold many
// pages, if possible, so that it holds its share of the log. Pages smaller than the system's
// huge pages would lose those after a few evictions, unlike the default page size.
func coldPage(s *Spec) int {
	page := 4 << 10
	for int64(page) < 2*s.recordBytes() || page < mem.HugePage && int64(page)*64*coldFactor < s.logBytes() {
		page *= 2
	}
	return page
}

// inPlace returns an error if a store that should be all in memory is not: its figures
// would not be of updates in place.
func inPlace(store *kv.Store, s *Spec) error {
	m := store.Metrics()
	if !s.Cold && (m.Log.Head > m.Log.Begin || m.Log.ReadOnly > m.Log.Begin) {
		return fmt.Errorf("storebench: the log, %d bytes, has outgrown its memory, %d: the store is not in memory",
			m.Log.Tail-m.Log.Begin, m.Log.MemoryBudget)
	}
	return nil
}
