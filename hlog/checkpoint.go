package hlog

import (
	"context"
	"fmt"
	"math"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

// ShiftReadOnly makes everything up to the tail read-only at once, and returns the tail. It
// is for callers inside [epoch.Table.Exclusive]: no session is inside an epoch, so every
// record below is whole, no session updates in place under an older marker, and the safe
// marker can move at once.
func (l *Log) ShiftReadOnly() int64 {
	tail := l.Tail()
	l.readOnly.raise(tail)
	l.safeReadOnly.raise(tail)
	if l.Block(tail) > l.committed.load() { // else nothing is due until Write wants it
		l.wake()
	}
	return tail
}

// Write returns when everything below target, which is read-only, is on the device, where the
// next Sync or Commit makes it durable. A log that cannot be written has what it has written.
func (l *Log) Write(ctx context.Context, target int64) error {
	if l.wanted.raise(target) {
		l.wake()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.await(ctx, func() bool { return l.committed.load() >= target })
	if err != nil && l.committed.load() < target {
		return fmt.Errorf("hlog: writing up to %d: %w", target, err)
	}
	return nil
}

// LastWritten returns the end of the last record that the device's commit point has whole, or what it is
// if the log begins above that.
func (l *Log) LastWritten() int64 {
	end := l.Committed()
	at := min(max(end&^int64(l.pageSize-1), l.Begin()), end)
	for at < end { // it is in memory: Head is not above the page in which Released is
		next := at + l.rest(at)
		if r := l.At(at); !l.unused(at, r.Header()) {
			next = at + l.layout.Extent(r)
		}
		if next > end {
			break
		}
		at = next
	}
	return at
}

// Unwritten returns the blocks of the log that are not on the device yet, up to target, which is
// read-only, with zeros after it, and their address; none if the device has all of it. The result
// is in buf, which is aligned, and not ok if they do not fit there, or if the log cannot be
// written.
func (l *Log) Unwritten(target int64, buf []byte) (blocks []byte, addr int64, ok bool) {
	failure := l.Err()
	committed := l.committed.load()
	addr = l.Block(committed)
	if committed >= target {
		return buf[:0], addr, failure == nil
	}
	end := l.Block(target + l.alignment - 1)
	if failure != nil || end-addr > int64(cap(buf)) {
		return nil, 0, false
	}
	blocks = buf[:0]
	for at := addr; at < target; at = addr + int64(len(blocks)) {
		blocks = l.AppendHeld(blocks, at, target)
	}
	blocks = buf[:end-addr]
	clear(blocks[target-addr:])
	// They may have been written and evicted meanwhile, and their frames used again.
	mem.LoadFence()
	return blocks, addr, l.head.load() <= max(addr, FirstAddress)
}

// Hold keeps in memory what the device may not have stored yet, and returns the address where
// that part begins, at the start of a device block. All writes below it are complete, and
// durable after a Sync. There is one holder at a time. Sessions that need the memory wait for
// [Log.Unhold].
func (l *Log) Hold() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Head moves under mu, and only past pages that are committed whole.
	l.held = l.Block(l.committed.load())
	return l.held
}

// AppendHeld appends the memory from addr to the end of its page, or to end if that comes
// first. The caller holds it, or checks afterwards that head has not passed it, and ensures that
// nothing but a seal changes in it.
func (l *Log) AppendHeld(dst []byte, addr, end int64) []byte {
	size := min(l.rest(addr), end-addr)
	return mem.AppendOut(dst, unsafe.Add(l.base, addr&l.ringMask), int(size))
}

// Unhold ends the hold on what is below addr.
func (l *Log) Unhold(addr int64) {
	l.mu.Lock()
	l.held = max(l.held, addr)
	l.mu.Unlock()
	l.wake()
}

// UnholdAll ends the hold.
func (l *Log) UnholdAll() { l.Unhold(math.MaxInt64) }

// Empty makes the log begin at its tail, and returns the tail. The tail moves to the end of its device
// block first, so that nothing of the log so far is needed. As ShiftReadOnly it is for callers
// inside [epoch.Table.Exclusive].
func (l *Log) Empty() int64 {
	p := position(l.tail.Load())
	if rest := -p.offset() & int(l.alignment-1); rest > 0 { // pages are multiples of blocks
		clear(l.frame(l.Tail(), rest)) // what a walk takes for the end of the page
		l.tail.Store(uint64(newPosition(p.page(), p.offset()+rest)))
	}
	tail := l.ShiftReadOnly()
	l.begin.raise(tail)
	return tail
}

// SetBegin makes the log begin at addr, which is read-only and where a record begins. The
// device holds what is below until it is truncated.
func (l *Log) SetBegin(addr int64) { l.begin.raise(addr) }

// Truncate releases the device's space below an address, which is not above Begin. The block
// that contains the address is kept, because it may be written again. What a slow tier has not
// written yet is released by the next call.
func (l *Log) Truncate(below int64) error {
	below = min(l.Block(below), l.Block(l.released.load()))
	if err := l.dev.Truncate(below); err != nil {
		return fmt.Errorf("hlog: truncating to %d: %w", below, err)
	}
	return nil
}

// Skip makes a log that cannot be written go on at an address, which is not above Begin and at the start
// of a device block: the device forgets what is below, which counts as written. There is one
// caller at a time.
func (l *Log) Skip(ctx context.Context, to int64) error {
	r := &skip{to: to, done: make(chan error, 1)}
	l.skipping.Store(r)
	defer l.skipping.Store(nil)
	l.wake()
	var err error
	select {
	case err = <-r.done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-l.stopped:
		err = ErrClosed
	}
	if err != nil {
		return fmt.Errorf("hlog: going on at %d: %w", to, err)
	}
	return nil
}

// Block is the start of the device's block that contains an address.
func (l *Log) Block(addr int64) int64 { return addr &^ (l.alignment - 1) }
