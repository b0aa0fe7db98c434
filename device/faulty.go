package device

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// ErrFault is the error that a Faulty injects.
var ErrFault = errors.New("device: injected fault")

// FaultyOptions choose the faults. Probabilities are from 0 to 1. Each operation draws from
// a generator of its queue, which Seed and the queue's number determine; Sync and objects
// draw from one of the device. ReadAt and Write of objects are reads and writes as those of
// queues, but never delayed or stuck.
type FaultyOptions struct {
	Seed uint64

	// ReadError and WriteError: the operation fails and does nothing.
	ReadError, WriteError float64
	// Full: a write of the log fails with ErrNoSpace and does nothing.
	Full bool
	// FailRead and FailWrite fail the k-th read or write of the device, from 1.
	FailRead, FailWrite int64
	// SyncError: Sync fails and makes nothing durable; an object's Commit fails,
	// with or without having taken place.
	SyncError float64
	// TornWrite: a part of the write, from its beginning, is stored, and the
	// write fails.
	TornWrite float64
	// LostWrite: the write succeeds and nothing is stored. An object gets zeros instead.
	LostWrite float64
	// Delay: the completion is delayed for up to MaxDelay polls (default 8), so that
	// completions are reordered.
	Delay    float64
	MaxDelay int
	// Stuck: the completion is delayed until Release.
	Stuck float64
	// Down fails every method except Close.
	Down bool
}

const defaultMaxDelay = 8

// Faulty wraps a Device and injects the faults of FaultyOptions and, by [Faulty.Crash], a
// loss of power. It is for tests, and allocates memory for each operation.
//
// With NewCrashable, writes stay in a cache until Sync, and reads of the Faulty see them.
// Crash drops the cache, so that the inner device holds what a disk would hold after a loss
// of power.
type Faulty struct {
	inner Device
	opts  atomic.Pointer[FaultyOptions]
	cache *writeCache // nil: writes go through

	queues        atomic.Uint64 // made so far; the number selects a queue's generator
	reads, writes atomic.Int64

	mu       sync.Mutex // guards rand, stuck, release and making
	rand     *rand.Rand
	stuck    context.Context // ends at the next Release
	release  context.CancelFunc
	making   map[*faultyObjectWriter]struct{} // neither committed nor aborted
	releases atomic.Uint64                    // calls of Release
	crashed  atomic.Bool
}

// NewFaulty wraps inner, which it owns.
func NewFaulty(inner Device, opts FaultyOptions) *Faulty {
	f := &Faulty{
		inner: inner, rand: rand.New(rand.NewPCG(opts.Seed, 0)),
		making: make(map[*faultyObjectWriter]struct{}),
	}
	f.opts.Store(&opts)
	f.stuck, f.release = context.WithCancel(context.Background())
	return f
}

// NewCrashable is NewFaulty with a cache that a Crash drops.
func NewCrashable(inner Device, opts FaultyOptions) *Faulty {
	f := NewFaulty(inner, opts)
	f.cache = &writeCache{inner: inner}
	return f
}

// Set changes the faults from now on; the seed stays.
func (f *Faulty) Set(opts FaultyOptions) { f.opts.Store(&opts) }

// Release ends the delay of all completions that are stuck now.
func (f *Faulty) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.releases.Add(1)
	f.release()
	f.stuck, f.release = context.WithCancel(context.Background())
}

// stuckContext returns a context that ends at the next Release.
func (f *Faulty) stuckContext() context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stuck
}

// Crash ends the device as a loss of power would: each write that was not synced is stored
// whole with probability keep, or not at all; objects that were not committed are lost.
// Every later call fails with ErrClosed. The inner device stays open and can be started
// again. No queue may be in use.
func (f *Faulty) Crash(keep float64) error {
	if f.crashed.Swap(true) {
		return nil
	}
	claims.Lock()
	abandon(f.inner)
	claims.Unlock()
	err := f.dropObjects()
	if f.cache != nil {
		err = errors.Join(err, f.cache.crash(func() bool { return f.chance(keep) }))
	}
	return err
}

// chance is true with probability p.
func (f *Faulty) chance(p float64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rand.Float64() < p
}

// gate returns an error if the device is down or has crashed.
func (f *Faulty) gate(what string) error {
	switch {
	case f.crashed.Load():
		return fmt.Errorf("%s: crashed: %w", what, ErrClosed)
	case f.opts.Load().Down:
		return fmt.Errorf("%s: device is down: %w", what, ErrFault)
	}
	return nil
}

// Start implements Device.
func (f *Faulty) Start(tail int64) error { return f.start(tail, Device.Start) }

func (f *Faulty) start(tail int64, start func(Device, int64) error) error {
	if err := f.gate("start"); err != nil {
		return err
	}
	if f.cache != nil {
		f.cache.drop()
	}
	return start(f.inner, tail)
}

// NewQueue implements Device.
func (f *Faulty) NewQueue(depth int) (Queue, error) {
	if err := f.gate("new queue"); err != nil {
		return nil, err
	}
	inner, err := f.inner.NewQueue(depth)
	if err != nil {
		return nil, err
	}
	return newFaultyQueue(f, inner, depth), nil
}

// Alignment implements Device.
func (f *Faulty) Alignment() int { return f.inner.Alignment() }

// Begin implements Device.
func (f *Faulty) Begin() int64 { return f.inner.Begin() }

// Truncate implements Device.
func (f *Faulty) Truncate(begin int64) error {
	if err := f.gate("truncate"); err != nil {
		return err
	}
	return f.inner.Truncate(begin)
}

// Sync implements Device.
func (f *Faulty) Sync() error {
	if err := f.gate("sync"); err != nil {
		return err
	}
	if f.chance(f.opts.Load().SyncError) {
		return fmt.Errorf("sync: %w", ErrFault)
	}
	if f.cache != nil {
		if err := f.cache.flush(); err != nil {
			return err
		}
	}
	return f.inner.Sync()
}

// WriteMeta implements Device; metadata is durable at once.
func (f *Faulty) WriteMeta(name string, data []byte) error {
	if err := f.gate("write metadata"); err != nil {
		return err
	}
	return f.inner.WriteMeta(name, data)
}

// ReadMeta implements Device.
func (f *Faulty) ReadMeta(name string) ([]byte, error) {
	if err := f.gate("read metadata"); err != nil {
		return nil, err
	}
	return f.inner.ReadMeta(name)
}

// Close implements Device. It flushes the cache. After a crash it does nothing: the caller
// of Crash owns the inner device.
func (f *Faulty) Close() error {
	if f.crashed.Load() {
		return nil
	}
	var err error
	if f.cache != nil {
		err = f.cache.flush()
	}
	return errors.Join(err, f.inner.Close())
}
