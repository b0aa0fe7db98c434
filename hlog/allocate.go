package hlog

import "fmt"

// Allocate takes size bytes at the tail, at most a page, for a record that the
// caller fills before it leaves its epoch. ok is false where the next page has
// no frame yet: the caller leaves its epoch, calls WaitForSpace, and begins its
// operation anew, since anything may have moved.
func (l *Log) Allocate(size int) (addr int64, ok bool) {
	for {
		old := position(l.tail.Load())
		offset := old.offset()
		if offset+size <= l.pageSize {
			if l.tail.CompareAndSwap(uint64(old), uint64(old)+uint64(size)) {
				return old.page()<<l.pageBits + int64(offset), true
			}
			continue
		}
		// The rest of the page is too small. Whoever takes it marks it as unused;
		// the page is not written before that caller has left its epoch.
		if offset < l.pageSize {
			if !l.tail.CompareAndSwap(uint64(old), uint64(newPosition(old.page(), l.pageSize))) {
				continue
			}
			l.At(old.page()<<l.pageBits + int64(offset)).SetHeader(0)
		}
		if !l.openPage(old.page() + 1) {
			return 0, false
		}
	}
}

// openPage makes page the tail's, if its frame is free, and moves the read-only
// marker behind it.
func (l *Log) openPage(page int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if position(l.tail.Load()).page() >= page {
		return true
	}
	if !l.frameFree(page) || l.err != nil || l.closed || page >= addressEnd(l.pageSize)>>l.pageBits {
		return false
	}
	l.tail.Store(uint64(newPosition(page, 0)))
	l.readOnly.raise((page - l.mutable()) << l.pageBits)
	l.wake()
	return true
}

// frameFree reports whether every page that had page's frame, or counts with it
// against the budget, is evicted.
func (l *Log) frameFree(page int64) bool {
	return page-l.safeHead.load()>>l.pageBits < l.frames.Load()
}

// WaitForSpace returns when Allocate may succeed again, or with the reason why
// it never will.
func (l *Log) WaitForSpace() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := position(l.tail.Load()).page() + 1
	if end := addressEnd(l.pageSize); next >= end>>l.pageBits {
		return fmt.Errorf("hlog: address space of %d bytes used up by pages of %d", end, l.pageSize)
	}
	for position(l.tail.Load()).page() < next && !l.frameFree(next) {
		if err := l.failure(); err != nil {
			return err
		}
		l.progress.Wait()
	}
	return l.failure()
}

// failure is why the log can no longer be written, or nil. The caller holds mu.
func (l *Log) failure() error {
	if l.closed {
		return ErrClosed
	}
	return l.err
}

// wake makes the flusher look around, out of its wait for a write if need be.
func (l *Log) wake() {
	select {
	case l.kick <- struct{}{}:
	default: // it has not looked since the last kick
	}
	// After the kick: the flusher looks for one when it has said that it parks.
	if cancel := l.parked.Load(); cancel != nil {
		(*cancel)()
	}
}
