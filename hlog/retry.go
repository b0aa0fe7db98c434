package hlog

import (
	"errors"
	"time"

	"github.com/redykv/redykv/device"
)

// After a temporary failure of a write the flusher writes again what is in memory, from
// released on, whatever the result of the writes that were pending. Writers and commits fail
// at once if there is no space. With other temporary failures they wait for up to
// device.RetryTime.

// isTemporary reports whether a failure of writes may be temporary: the device had no space,
// or the process was short of descriptors or memory.
func isTemporary(err error) bool {
	return errors.Is(err, device.ErrNoSpace) || errors.Is(err, device.ErrTransient)
}

// The flusher tries again after these times.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = time.Second
)

// writing reports whether writes of the log are pending.
func (f *flusher) writing() bool {
	for i := f.first; i < f.next; i++ {
		if !f.flushes[i%flushDepth].over {
			return true
		}
	}
	return false
}

// pause sets the time of the next retry, and reports the first failure.
func (f *flusher) pause(err error) {
	f.backoff = min(max(2*f.backoff, firstBackoff), lastBackoff)
	f.retryAt = time.Now().Add(f.backoff)
	if !f.since.IsZero() {
		return
	}
	f.since = f.now()
	f.counts.waiting.Store(true)
	f.logger.Warn("writing the log failed, it is tried again", "err", err)
	if f.listener.Waits != nil {
		f.listener.Waits(err, 0)
	}
}

// writersWait reports whether writers wait for the end of a failure instead of failing.
func (f *flusher) writersWait(err error) bool {
	return !f.reported && !errors.Is(err, device.ErrNoSpace) && f.now().Sub(f.since) < device.RetryTime
}

// restart begins writing again at released, when the back-off is over and no write is pending.
func (f *flusher) restart() bool {
	if !f.failed || f.final || f.writing() || time.Now().Before(f.retryAt) {
		return false
	}
	f.counts.retries.Add(1)
	f.again()
	return true
}

// skip is a call of Skip. The flusher sends one error, or nil.
type skip struct {
	to   int64
	done chan error
}

// skip goes on above what cannot be written, if that is wanted and no write is pending.
func (f *flusher) skip() bool {
	r := f.skipping.Load()
	if r == nil || f.writing() || !f.skipping.CompareAndSwap(r, nil) {
		return false
	}
	if f.failed && f.final {
		r.done <- f.Err()
		return true
	}
	if err := f.dev.Truncate(r.to); err != nil {
		r.done <- err
		return true
	}
	f.committed.raise(r.to)
	f.released.raise(r.to)
	f.again()
	f.resumed()
	f.broadcast()
	r.done <- nil
	return true
}

// again makes the flusher write what is above released, whatever it has written of that.
func (f *flusher) again() {
	f.failed = false
	f.first, f.firstUncommitted = f.next, f.next
	f.issued = f.released.load()
	f.partial = f.issued&(f.alignment-1) != 0
}

// resumed ends a temporary failure after a successful write on every tier.
func (f *flusher) resumed() {
	if f.since.IsZero() || f.failed {
		return
	}
	took := f.now().Sub(f.since)
	f.since, f.backoff, f.reported = time.Time{}, 0, false
	f.mu.Lock()
	f.err = nil
	f.fails.Store(f.closed)
	f.mu.Unlock()
	f.counts.waiting.Store(false)
	f.logger.Info("the log can be written again", "after", took)
	if f.listener.Waits != nil {
		f.listener.Waits(nil, took)
	}
}
