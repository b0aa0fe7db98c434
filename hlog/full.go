package hlog

import "time"

// A log for which the device has no space stays readable, and who writes is told at once.
// What was not written is in memory: the flusher writes it again after a while, from
// released on, for whatever has happened to the writes that were under way. Once one goes
// well, the log can be written again.

// The flusher tries again after these times.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = time.Second
)

// underWay says whether the device has writes of the log.
func (f *flusher) underWay() bool {
	for i := f.first; i < f.next; i++ {
		if !f.flushes[i%flushDepth].over {
			return true
		}
	}
	return false
}

// pause has again wait for longer than the last time.
func (f *flusher) pause() {
	f.backoff = min(max(2*f.backoff, firstBackoff), lastBackoff)
	f.retryAt = time.Now().Add(f.backoff)
}

// again begins to write what is not released, if it is time to. Nothing of it is under way.
func (f *flusher) again() bool {
	if !f.failed || f.final || f.underWay() || time.Now().Before(f.retryAt) {
		return false
	}
	f.failed = false
	f.first, f.firstUncommitted = f.next, f.next
	f.issued = f.released.load()
	f.partial = f.issued&(f.alignment-1) != 0
	return true
}

// awaitSpace waits until it is time to try again, or for a kick.
func (f *flusher) awaitSpace() {
	timer := time.NewTimer(time.Until(f.retryAt))
	defer timer.Stop()
	select {
	case <-f.kick:
	case <-timer.C:
	}
}

// goesOn ends a want of space. Something was written after it.
func (f *flusher) goesOn() {
	if !f.told || f.failed {
		return
	}
	f.told, f.backoff = false, 0
	f.mu.Lock()
	f.err = nil
	f.mu.Unlock()
	f.logger.Info("the log can be written again")
}
