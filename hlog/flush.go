package hlog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/redykv/redykv/device"
)

// flushDepth is the number of writes that the flusher keeps pending.
const flushDepth = 16

// flush is one pending write. A page goes through these states; each moves a marker when
// all pages before it have reached the state too:
//
//	mutable → read-only → safe read-only → writing → committed → released → evicted
type flush struct {
	end                 int64 // end of the bytes written
	begun               time.Time
	committed, released bool
	over                bool // it has ended, with or without an error
}

// flusher writes the log's pages and evicts them, on one goroutine, which owns its fields.
type flusher struct {
	*Log
	queue device.Queue

	flushes          [flushDepth]flush // ring: [first, next) are pending
	first, next      uint64            // flushes[i%flushDepth]; i is the write's tag
	firstUncommitted uint64            // in [first, next]
	issued           int64             // every byte below it is written or being written
	partial          bool              // issued ends inside a block: see issue
	block            []byte            // holds that block while it is written; aligned

	readOnlyEpoch uint64 // if not 0, safeReadOnly moves to readOnlyNext when it has passed
	readOnlyNext  int64
	headEpoch     uint64 // the same for safeHead
	headNext      int64

	failed   bool          // nothing is written: for ever if final, else until retryAt
	final    bool          // see retry.go
	retryAt  time.Time     // when writes are tried again
	backoff  time.Duration // until then
	since    time.Time     // of the first failure since the last successful write, by now
	reported bool          // writers and the listener know of a failure
	now      func() time.Time
}

// run steps until the log is closed. When a step has nothing to do it waits: for sessions to
// leave an epoch (it yields, since they are inside for microseconds), for a write, or for a
// kick.
func (f *flusher) run() {
	defer close(f.stopped)
	defer func() {
		if err := f.queue.Close(); err != nil {
			f.logger.Warn("closing the log's queue", "err", err)
		}
	}()
	for {
		f.mu.Lock()
		closed := f.closed
		f.mu.Unlock()
		switch {
		case closed:
			return
		case f.step():
		case f.readOnlyEpoch != 0 || f.headEpoch != 0:
			runtime.Gosched()
		case f.writing() && !f.final:
			f.await()
		case f.failed && !f.final:
			select {
			case <-f.kick:
			case <-time.After(time.Until(f.retryAt)):
			}
		default:
			<-f.kick
		}
	}
}

// await waits for a write or for a kick.
func (f *flusher) await() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f.parked.Store(&cancel)
	defer f.parked.Store(nil)
	select {
	case <-f.kick:
		return
	default:
	}
	if err := f.queue.Wait(ctx); err != nil && ctx.Err() == nil {
		f.fail(fmt.Errorf("hlog: waiting for writes: %w", err))
	}
}

// step does what can be done without waiting and reports whether it did anything.
func (f *flusher) step() bool {
	worked := f.settle()
	worked = f.skip() || worked
	worked = f.restart() || worked
	worked = f.issue() || worked
	worked = f.poll() || worked
	return f.evict() || worked
}

// settle moves safeReadOnly after readOnly.
func (f *flusher) settle() bool {
	if f.readOnlyEpoch == 0 {
		f.readOnlyNext = f.readOnly.load()
		if f.readOnlyNext <= f.safeReadOnly.load() {
			return false
		}
		f.readOnlyEpoch = f.epoch.Bump()
	}
	if !f.epoch.Passed(f.readOnlyEpoch) {
		return false
	}
	f.readOnlyEpoch = 0
	return f.safeReadOnly.raise(f.readOnlyNext)
}

// due returns the end of what is to be written. What is read-only may end inside a block, after
// a commit: then the block is written when it is full, unless Write wants its start before.
func (f *flusher) due() int64 {
	end := f.safeReadOnly.load()
	if wanted := f.wanted.load(); wanted <= f.issued || wanted <= f.Block(end) {
		return f.Block(end)
	}
	return end
}

// issue writes what is due, in pieces that do not cross pages. Of a block that is not full only
// the start may be written, because the rest is still being updated: the start is copied and
// written, and the whole block is written again with what follows. The two writes must not
// overtake each other, so nothing is issued until the first has ended.
func (f *flusher) issue() bool {
	worked := false
	for due := f.due(); !f.failed && f.skipping.Load() == nil && f.issued < due && f.next-f.first < flushDepth; {
		if f.partial && f.first != f.next {
			break
		}
		start := f.issued &^ (f.alignment - 1)
		end := min(f.issued+f.rest(f.issued), due)
		aligned := end &^ (f.alignment - 1)
		var src []byte
		if aligned > start {
			src, end = f.frame(start, int(aligned-start)), aligned
		} else {
			clear(f.block[copy(f.block, f.frame(start, int(end-start))):])
			src = f.block
		}
		if err := f.queue.Write(src, start, f.next); err != nil {
			if !errors.Is(err, device.ErrQueueFull) {
				f.fail(fmt.Errorf("hlog: writing %d bytes at %d: %w", len(src), start, err))
			}
			break
		}
		f.flushes[f.next%flushDepth] = flush{end: end, begun: time.Now()}
		f.next++
		f.issued, f.partial = end, end != aligned
		worked = true
	}
	if worked {
		if err := f.queue.Submit(); err != nil {
			f.fail(fmt.Errorf("hlog: submitting writes: %w", err))
		}
	}
	return worked
}

// poll takes completions and moves committed and released.
func (f *flusher) poll() bool {
	if f.first == f.next {
		return false
	}
	var done [2 * flushDepth]device.Completion
	n := f.queue.Poll(done[:])
	wrote := false
	for _, c := range done[:n] {
		if c.Tag < f.first || c.Tag >= f.next {
			f.fail(fmt.Errorf("hlog: completion of unknown write %d", c.Tag))
			continue
		}
		fl := &f.flushes[c.Tag%flushDepth]
		fl.over = c.Event != device.Committed
		wrote = wrote || c.Err == nil && fl.over
		switch {
		case c.Event == device.Released && c.Err == nil:
			fl.released = true
		case c.Err != nil:
			// The last tier does not hold these bytes, even if they were Committed. They stay
			// in memory and are not evicted.
			f.fail(fmt.Errorf("hlog: writing the log up to %d: %w", fl.end, c.Err))
		default:
			fl.committed, fl.released = true, c.Event == device.Done
		}
	}
	for f.firstUncommitted < f.next && f.flushes[f.firstUncommitted%flushDepth].committed {
		fl := &f.flushes[f.firstUncommitted%flushDepth]
		from := f.committed.load()
		if f.committed.raise(fl.end) {
			f.flushed(from, fl)
		}
		f.firstUncommitted++
	}
	for f.first < f.firstUncommitted && f.flushes[f.first%flushDepth].released {
		f.released.raise(f.flushes[f.first%flushDepth].end)
		f.first++
	}
	if wrote {
		f.resumed()
	}
	if n > 0 {
		f.broadcast()
	}
	return n > 0
}

// evict keeps the frame of the page after the tail's free, one page ahead of
// need, and moves safeHead after head.
func (f *flusher) evict() bool {
	if f.headEpoch == 0 {
		page := position(f.tail.Load()).page() + 2 - f.frames.Load()
		page = min(page, f.released.load()>>f.pageBits)
		if !f.raiseHead(page << f.pageBits) {
			return false
		}
		f.headEpoch = f.epoch.Bump()
	}
	if !f.epoch.Passed(f.headEpoch) {
		return false
	}
	f.headEpoch = 0
	if f.frames.Load()<<f.pageBits < int64(len(f.ring)) { // else the frame is reused next
		f.discard(f.safeHead.load()>>f.pageBits, f.headNext>>f.pageBits)
	}
	from := f.safeHead.load()
	f.mu.Lock()
	f.safeHead.raise(f.headNext)
	f.surplus = max(f.surplus-(f.headNext-from)>>f.pageBits, 0)
	f.progress.Broadcast()
	f.mu.Unlock()
	f.evicted(from, f.headNext)
	return true
}

// raiseHead moves head up to addr, at most to what is held, and reports whether it moved.
func (f *flusher) raiseHead(addr int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.headNext = min(addr, f.held&^int64(f.pageSize-1))
	return f.head.raise(f.headNext)
}

// fail ends writing, for ever unless the error is one of those in retry.go. What is
// committed stays, and what is in memory can still be read.
func (f *flusher) fail(err error) {
	temporary := isTemporary(err)
	if f.failed && (f.final || temporary) {
		return
	}
	f.failed, f.final = true, !temporary
	if f.final {
		f.counts.waiting.Store(false) // it is not tried again
	}
	if temporary {
		f.pause(err)
		if f.writersWait(err) {
			return
		}
	}
	f.mu.Lock()
	f.err = err
	f.fails.Store(true)
	f.progress.Broadcast()
	f.mu.Unlock()
	if f.reported && temporary {
		return
	}
	f.reported = true
	f.logger.Error("the log can no longer be written", "err", err)
	if f.listener.Failed != nil {
		f.listener.Failed(err)
	}
}
