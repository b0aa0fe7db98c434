package hlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Allocate takes size bytes at the tail, at most a page, for a record that the caller fills
// before it leaves its epoch. ok is false if the next page has no frame yet: the caller
// leaves its epoch, calls WaitForSpace, and repeats its operation from the start, since any
// marker may have moved.
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
		// The rest of the page is too small. The caller that takes it marks it as
		// unused; the page is not written before that caller has left its epoch.
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

// openPage moves the tail to page, if the page's frame is free, and the read-only marker
// after it.
func (l *Log) openPage(page int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tailPage() >= page {
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

// frameFree reports whether page can be opened: every earlier page of its frame, and every
// page that would exceed the budget together with it, is evicted. The caller holds mu.
func (l *Log) frameFree(page int64) bool {
	return page-l.safeHead.load()>>l.pageBits < l.frames.Load()+l.surplus/2
}

// WaitForSpace waits until Allocate may succeed again. It returns the log's error if Allocate
// cannot succeed any more, or ctx's if ctx ends first.
func (l *Log) WaitForSpace(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.roomOnPage() { // another caller of Allocate has opened it
		return nil
	}
	next := l.tailPage() + 1
	if end := addressEnd(l.pageSize); next >= end>>l.pageBits {
		return fmt.Errorf("hlog: the address space of %d bytes with pages of %d is used up", end, l.pageSize)
	}
	err := l.await(ctx, func() bool { return l.roomOnPage() || l.frameFree(l.tailPage()+1) })
	if err != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("hlog: waiting for space: %w", err)
	}
	return err
}

// roomOnPage reports whether the tail's page has room, for some record. A failed Allocate has marked
// the rest of its page as unused.
func (l *Log) roomOnPage() bool { return position(l.tail.Load()).offset() < l.pageSize }

// await waits until done, and returns the log's error, or ctx's if ctx ends first. The caller
// holds mu. What done depends on changes with a broadcast.
func (l *Log) await(ctx context.Context, done func() bool) error {
	defer context.AfterFunc(ctx, l.broadcast)()
	for !done() {
		if err := cmp.Or(l.failure(), ctx.Err()); err != nil {
			return err
		}
		l.progress.Wait()
	}
	return l.failure()
}

func (l *Log) broadcast() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress.Broadcast()
}

// failure returns the error for which the log cannot be written, or nil. The caller holds mu.
func (l *Log) failure() error {
	if l.closed {
		return ErrClosed
	}
	return l.err
}

// Err returns the error for which the log cannot be written, or nil. After a temporary failure it is
// nil again when a write has succeeded.
func (l *Log) Err() error {
	if !l.fails.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure()
}

// wake makes the flusher take a step, and ends its wait for a write.
func (l *Log) wake() {
	select {
	case l.kick <- struct{}{}:
	default: // the last kick was not received yet
	}
	// After the kick: the flusher sets parked and then looks for a kick.
	if cancel := l.parked.Load(); cancel != nil {
		(*cancel)()
	}
}
