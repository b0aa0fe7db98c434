package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/bench"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ycsb"
)

// coldFactor is how many times its memory a cold store's log is.
const coldFactor = 6

// slack is the memory beside the log, so that nothing leaves the part that is
// updated in place. That part is 0.9 of memory, and a record that has used up its
// versions, some hundreds, is copied to the tail, where values are no single word.
// What is not needed is never touched.
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

// openStore makes and loads the store of a run. It is the caller's to close.
func openStore(ctx context.Context, s *Spec, progress bench.Progress) (*kv.Store, error) {
	opts := kv.Options{
		Device:     device.NewNull(), // nothing gets there before the store is closed
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
	shape := ycsb.Shape{Records: s.Records, ValueSize: s.ValueSize, Memory: opts.Memory, Depth: 1}
	load := ycsb.Fill
	if s.Cold {
		load = ycsb.Load // what is being written would be read from memory
	}
	progress.Begin("load", s.Records)
	err = load(ctx, store, shape, runtime.GOMAXPROCS(0), progress)
	progress.End()
	if err == nil {
		err = inPlace(store, s)
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// coldPage is a page size of which the cold store's memory holds many, where
// that is possible, so that it holds the share of the log that it should. With pages
// smaller than the system's huge ones it would not be in huge ones any more after a
// few evictions, as it is in stores of the default page size.
func coldPage(s *Spec) int {
	page := 4 << 10
	for int64(page) < 2*s.recordBytes() || page < mem.HugePage && int64(page)*64*coldFactor < s.logBytes() {
		page *= 2
	}
	return page
}

// inPlace says whether a store that should be all in memory still is, so that a
// figure is one of updates in place.
func inPlace(store *kv.Store, s *Spec) error {
	m := store.Metrics()
	if !s.Cold && (m.Log.Head > m.Log.Begin || m.Log.ReadOnly > m.Log.Begin) {
		return fmt.Errorf("storebench: the log, %d bytes, has outgrown its memory, %d: what was measured is no store in memory",
			m.Log.Tail-m.Log.Begin, m.Log.MemoryBudget)
	}
	return nil
}
