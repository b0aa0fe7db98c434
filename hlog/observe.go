package hlog

import (
	"sync/atomic"
	"time"
)

// Listener observes the log's flusher. Nil functions are not called. The flusher calls the
// others on its goroutine, so they must be quick and not wait for the log.
type Listener struct {
	// Flushed: the device's commit point has the bytes between two addresses; took is the
	// time since their write began.
	Flushed func(from, until int64, took time.Duration)
	// Evicted: the bytes between two addresses left memory.
	Evicted func(from, until int64)
	// Failed: the log can no longer be written, unless Waits reports a success later.
	Failed func(err error)
	// Waits: writing failed with err and is tried again; or, with a nil err, a write has
	// succeeded, took after the first failure.
	Waits func(err error, took time.Duration)
}

// Counts are the flusher's counters since the log was opened.
type Counts struct {
	Flushes, Evictions         uint64 // writes that reached the commit point; moves of Head
	FlushedBytes, EvictedBytes int64
	Retries                    uint64 // times that writing was tried again after a failure
	Waiting                    bool   // writing has failed, and is tried again
}

// flusherCounts are written by the flusher and read by Counts.
type flusherCounts struct {
	flushes, evictions         atomic.Uint64
	flushedBytes, evictedBytes atomic.Int64
	retries                    atomic.Uint64
	waiting                    atomic.Bool
}

// Counts returns the flusher's counters.
func (l *Log) Counts() Counts {
	c := &l.counts
	return Counts{
		Flushes: c.flushes.Load(), Evictions: c.evictions.Load(),
		FlushedBytes: c.flushedBytes.Load(), EvictedBytes: c.evictedBytes.Load(),
		Retries: c.retries.Load(), Waiting: c.waiting.Load(),
	}
}

// flushed counts and reports a write that has reached the commit point.
func (f *flusher) flushed(from int64, fl *flush) {
	f.counts.flushes.Add(1)
	f.counts.flushedBytes.Add(fl.end - from)
	if f.listener.Flushed != nil {
		f.listener.Flushed(from, fl.end, time.Since(fl.begun))
	}
}

// evicted counts and reports pages that left memory.
func (f *flusher) evicted(from, until int64) {
	f.counts.evictions.Add(1)
	f.counts.evictedBytes.Add(until - from)
	if f.listener.Evicted != nil {
		f.listener.Evicted(from, until)
	}
}
