package hlog

import (
	"errors"
	"time"

	"github.com/redykv/redykv/device"
)

// Some failures of writes are temporary: the device had no space, or the process was short of
// descriptors or memory. The log stays readable, and what was not written is in memory: after
// a back-off the flusher writes it again, from released on, whatever the result of the writes
// that were pending. When a write succeeds, the log can be written again.
//
// Writers and commits fail at once if there is no space. With other temporary failures they
// wait for up to device.RetryTime.

// passes reports whether a failure of writes may be temporary.
func passes(err error) bool {
	return errors.Is(err, device.ErrNoSpace) || errors.Is(err, device.ErrTransient)
}

// The flusher tries again after these times.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = time.Second
)

// underWay reports whether writes of the log are pending.
func (f *flusher) underWay() bool {
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
	f.since = time.Now()
	f.counts.waiting.Store(true)
	f.logger.Warn("writing the log failed, it is tried again", "err", err)
	if f.listener.Waits != nil {
		f.listener.Waits(err, 0)
	}
}

// bears reports whether writers wait for the end of a failure instead of failing.
func (f *flusher) bears(err error) bool {
	return !f.told && !errors.Is(err, device.ErrNoSpace) && time.Since(f.since) < device.RetryTime
}

// again restarts writing from released, when the back-off is over and no write is pending.
func (f *flusher) again() bool {
	if !f.failed || f.final || f.underWay() || time.Now().Before(f.retryAt) {
		return false
	}
	f.failed = false
	f.counts.retries.Add(1)
	f.first, f.firstUncommitted = f.next, f.next
	f.issued = f.released.load()
	f.partial = f.issued&(f.alignment-1) != 0
	return true
}

// awaitRetry waits for the end of the back-off, or for a kick.
func (f *flusher) awaitRetry() {
	timer := time.NewTimer(time.Until(f.retryAt))
	defer timer.Stop()
	select {
	case <-f.kick:
	case <-timer.C:
	}
}

// goesOn ends a temporary failure after a successful write on every tier.
func (f *flusher) goesOn() {
	if f.since.IsZero() || f.failed {
		return
	}
	took := time.Since(f.since)
	f.since, f.backoff, f.told = time.Time{}, 0, false
	f.mu.Lock()
	f.err = nil
	f.mu.Unlock()
	f.counts.waiting.Store(false)
	f.logger.Info("the log can be written again", "after", took)
	if f.listener.Waits != nil {
		f.listener.Waits(nil, took)
	}
}
