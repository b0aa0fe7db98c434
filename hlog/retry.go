package hlog

import (
	"errors"
	"time"

	"github.com/redykv/redykv/device"
)

// Some failures of writes pass: the device had no space, or the process was short of
// descriptors, memory or the like. The log stays readable, and what was not written is in
// memory: after a while the flusher writes it again, from released on, whatever became of
// the writes that were under way. Once a write succeeds, the log can be written again.
//
// Writers and commits are told at once that there is no space. For the rest they wait,
// until it has lasted for device.RetryTime.

// passes reports whether a failure of writes may pass.
func passes(err error) bool {
	return errors.Is(err, device.ErrNoSpace) || errors.Is(err, device.ErrTransient)
}

// The flusher tries again after these times.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = time.Second
)

// underWay reports whether the device has writes of the log.
func (f *flusher) underWay() bool {
	for i := f.first; i < f.next; i++ {
		if !f.flushes[i%flushDepth].over {
			return true
		}
	}
	return false
}

// pause has again wait for longer than the last time, and tells of the first failure.
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

// bears reports whether writers wait for the end of a failure instead of being told.
func (f *flusher) bears(err error) bool {
	return !f.told && !errors.Is(err, device.ErrNoSpace) && time.Since(f.since) < device.RetryTime
}

// again begins to write what is not released, if it is time to. Nothing of it is under way.
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

// awaitRetry waits until it is time to try again, or for a kick.
func (f *flusher) awaitRetry() {
	timer := time.NewTimer(time.Until(f.retryAt))
	defer timer.Stop()
	select {
	case <-f.kick:
	case <-timer.C:
	}
}

// goesOn ends a failure that has passed: a write has succeeded after it, on every tier.
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
