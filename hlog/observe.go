package hlog

import (
	"sync/atomic"
	"time"
)

// Listener is told what the log's flusher does. What is nil is not called. The
// flusher calls them itself, and does nothing else meanwhile: they are quick, and
// do not wait for the log.
type Listener struct {
	// Flushed: the bytes between two addresses are at the device's commit point,
	// so long after the write of them was begun.
	Flushed func(from, until int64, took time.Duration)
	// Evicted: the bytes between two addresses are in memory no more.
	Evicted func(from, until int64)
	// Failed: the log can no longer be written; for good, unless Waits says otherwise
	// later.
	Failed func(err error)
	// Waits: writing failed with err, which may pass, and is tried again; or, with a
	// nil err, a write has succeeded after so long.
	Waits func(err error, took time.Duration)
}

// Counts is what the flusher has done since the log was opened.
type Counts struct {
	Flushes, Evictions         uint64 // writes that are at the commit point; moves of Head
	FlushedBytes, EvictedBytes int64
	Retries                    uint64 // times that writing began again after a failure
	Waiting                    bool   // writing has failed, and is tried again
}

// flusherCounts are the flusher's own, for everybody to read.
type flusherCounts struct {
	flushes, evictions         atomic.Uint64
	flushedBytes, evictedBytes atomic.Int64
	retries                    atomic.Uint64
	waiting                    atomic.Bool
}

// Counts says what the flusher has done.
func (l *Log) Counts() Counts {
	c := &l.counts
	return Counts{
		Flushes: c.flushes.Load(), Evictions: c.evictions.Load(),
		FlushedBytes: c.flushedBytes.Load(), EvictedBytes: c.evictedBytes.Load(),
		Retries: c.retries.Load(), Waiting: c.waiting.Load(),
	}
}

// flushed counts and tells of a write that is at the commit point.
func (f *flusher) flushed(from int64, fl *flush) {
	f.counts.flushes.Add(1)
	f.counts.flushedBytes.Add(fl.end - from)
	if f.listener.Flushed != nil {
		f.listener.Flushed(from, fl.end, time.Since(fl.begun))
	}
}

// evicted counts and tells of pages that are in memory no more.
func (f *flusher) evicted(from, until int64) {
	f.counts.evictions.Add(1)
	f.counts.evictedBytes.Add(until - from)
	if f.listener.Evicted != nil {
		f.listener.Evicted(from, until)
	}
}
