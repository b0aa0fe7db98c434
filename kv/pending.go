package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
)

// pendingOp is a cold operation: it waits for a record from the device. Its number
// is the tag of the read.
type pendingOp struct {
	op     *Op
	hash   uint64
	keep   int
	at     coldRecord
	buf    []byte        // the record; owned by the queue from read to completion
	whole  []byte        // space that buf is cut from
	stream bool          // handed back by Poll
	serial atomic.Uint64 // its operation's number until it has its effect; 0 if it has none
}

// keepBuffer is the largest buffer that a pending operation keeps for the next operation: a
// session has many pending operations, and most values are small.
const keepBuffer = 64 << 10

// reservePending waits until a pending operation is free. The first one opens the queue.
func (s *Session) reservePending() (err error) {
	if s.queue == nil {
		if s.queue, err = s.store.dev.NewQueue(len(s.pending)); err != nil {
			s.queue = nil
			return fmt.Errorf("kv: opening a queue on the device: %w", err)
		}
	}
	for len(s.free) == 0 && err == nil {
		err = s.await(context.Background())
	}
	return err
}

// issue gives an operation a pending operation to where its record is. There is a free
// one, and the session is inside an epoch.
func (s *Session) issue(op *Op, hash uint64, keep int, stream bool, where coldRecord) uint32 {
	n := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	f := &s.pending[n]
	f.op, f.hash, f.keep, f.stream, f.at = op, hash, keep, stream, where
	if !stream {
		s.batch++
	}
	s.counts.ops[op.Kind].inc()
	if s.ordered(op.Kind) {
		s.pendingRMWs[hashByte(hash)]++
		s.allPendingRMWs++
		f.serial.Store(s.begun())
	}
	return n
}

// fetch gets the record at the pending operation's address, from the read cache or the
// device, and follows its chain through the cache. It may land the pending operation and
// call the user's code: but for reads it is called outside an epoch.
func (s *Session) fetch(n uint32) {
	f := &s.pending[n]
	for s.cache != nil {
		record, ok := s.cache.Get(f.whole[:0], f.at.address)
		if !ok {
			break
		}
		f.whole = record
		s.counts.cacheHits.inc()
		if _, goesOn := s.examine(n, record, fromCache); !goesOn {
			return
		}
	}
	s.readDevice(n, s.layout.Probe())
}

// readDevice enqueues a read of up to size bytes at the pending operation's address. Records do
// not cross pages, so neither do reads: all of a page below head is written.
func (s *Session) readDevice(n uint32, size int) {
	f := &s.pending[n]
	size = min(size, s.restOfPage(f.at.address))
	if cap(f.whole) < size {
		f.whole = make([]byte, size)
	}
	f.buf = f.whole[:size]
	if err := s.queue.Read(f.buf, f.at.address, uint64(n)); err != nil {
		s.completePending(n, fmt.Errorf("kv: reading the record at %d: %w", f.at.address, err), 0)
		return
	}
	s.unsubmitted++
}

// restOfPage is how many bytes there are from an address to the end of its page.
func (s *Session) restOfPage(address int64) int {
	return s.log.PageSize() - int(address)&(s.log.PageSize()-1)
}

// submitReads submits what was enqueued.
func (s *Session) submitReads() {
	if s.unsubmitted == 0 {
		return
	}
	s.unsubmitted = 0
	if err := s.queue.Submit(); err != nil {
		// Each read still completes by itself, with its own error.
		s.store.opts.Logger.Warn("submitting reads", "err", err)
	}
}

// pollQueue takes what has arrived and says how many records that was.
func (s *Session) pollQueue() int {
	if len(s.free) == len(s.pending) {
		return 0
	}
	s.submitReads()
	if s.takenReads == s.polledReads {
		s.takenReads, s.polledReads = 0, s.queue.Poll(s.completions[:])
	}
	n := s.polledReads - s.takenReads
	for s.takenReads < s.polledReads {
		c := &s.completions[s.takenReads]
		s.takenReads++ // first: a Modifier that panics must not lose those behind it
		if !s.words || !s.completeWordRead(c) {
			s.completeRead(c)
		}
	}
	s.submitReads() // chains that go on
	return n
}

// await polls the queue, and parks first if nothing has arrived.
func (s *Session) await(ctx context.Context) error {
	if s.pollQueue() > 0 {
		return nil
	}
	if err := s.queue.Wait(ctx); err != nil {
		err = fmt.Errorf("kv: waiting for reads: %w", err)
		if ctx.Err() == nil {
			s.stop(err)
		}
		return err
	}
	s.pollQueue()
	return nil
}

// completeRead goes on with a pending operation whose record has come.
func (s *Session) completeRead(c *device.Completion) {
	n := uint32(c.Tag)
	f := &s.pending[n]
	if c.Err != nil && f.at.address < s.log.Begin() {
		s.restart(n, int(c.Tier)) // it was truncated under the read
		return
	}
	if c.Err != nil {
		s.completePending(n, fmt.Errorf("kv: reading the record at %d: %w", f.at.address, c.Err), 0)
		return
	}
	// As they are now: an RMW may be on its way to another record already.
	kind, address, buf := f.op.Kind, f.at.address, f.buf
	size, goesOn := s.examine(n, buf, int(c.Tier))
	switch {
	case size > len(buf):
		s.readDevice(n, size)
		return
	case size > 0:
		s.counts.deviceReads.inc()
		if s.cache != nil && kind == OpRead { // what an RMW has replaced nobody looks for
			s.cache.Add(address, buf[:size])
		}
	}
	if goesOn {
		s.fetch(n)
	}
}

// examine looks at the record at the pending operation's address, whose start is b. size is
// the record's, more than b where the rest of it must be fetched, 0 if it is
// none that can be. goesOn says that it is another key's: the pending operation's address is
// that of the next record of the chain then. Otherwise, and unless the rest must
// be fetched, the operation has gone on.
func (s *Session) examine(n uint32, b []byte, tier int) (size int, goesOn bool) {
	f := &s.pending[n]
	at := f.at.address
	im, size, err := s.layout.Decode(b)
	previous := im.Header.Previous()
	switch {
	case err != nil:
		s.completePending(n, corrupt(at, "%v", err), 0)
		return 0, false
	case size > s.restOfPage(at):
		s.completePending(n, corrupt(at, "%d bytes, over the page's end", size), 0)
		return 0, false
	case size > len(b):
	case f.op.trace != 0:
		return size, s.examineTrace(n, im, tier)
	case sameKey(im.Key, f.op.Key):
		s.resolve(n, im, !im.Header.Tombstone() && !s.expired(im.Expires), tier)
	case previous >= at:
		s.completePending(n, corrupt(at, "previous record at %d", previous), 0)
		return 0, false
	case previous >= f.at.begin:
		f.at.address = previous
		return size, true
	default:
		s.resolve(n, hlog.Image{}, false, tier)
	}
	return size, false
}

// sameKey is bytes.Equal, faster for keys of one word.
func sameKey(a, b []byte) bool {
	if len(a) == 8 && len(b) == 8 {
		return loadWord(a) == loadWord(b)
	}
	return bytes.Equal(a, b)
}

// resolve ends a pending operation that knows the key's record, or that there is none.
func (s *Session) resolve(n uint32, im hlog.Image, found bool, tier int) {
	op := s.pending[n].op
	if op.Kind != OpRead {
		if im.Header.Tombstone() {
			im.Expires = 0
		}
		s.resolveRMW(n, im, found, tier)
		return
	}
	op.Value, op.Expires = op.Value[:s.pending[n].keep], 0
	if !found {
		s.completePending(n, ErrNotFound, tier)
		return
	}
	op.Value, op.Expires = append(op.Value, im.Value...), im.Expires
	s.completePending(n, nil, tier)
}

// resolveRMW is resolve where the user's code is called.
func (s *Session) resolveRMW(n uint32, im hlog.Image, found bool, tier int) {
	s.step(n, tier, func(f *pendingOp) (coldRecord, bool) { return s.replaceCold(f, im, found) })
}

// restart begins a pending operation's operation anew.
func (s *Session) restart(n uint32, tier int) {
	s.step(n, tier, func(f *pendingOp) (coldRecord, bool) { return s.attempt(f.op, f.hash, f.keep, f) })
}

// step takes a pending operation's next step, which may be its last one. Should the user's
// code panic in there, the pending operation lands nevertheless: the session would wait for
// it for ever.
func (s *Session) step(n uint32, tier int, next func(*pendingOp) (where coldRecord, cold bool)) {
	f := &s.pending[n]
	returned := false
	defer func() {
		if !returned {
			s.completePending(n, errPanicked, tier)
		}
	}()
	where, cold := next(f)
	returned = true
	if !cold {
		s.completePending(n, f.op.Err, tier)
		return
	}
	f.at = where
	s.fetch(n)
}

// errPanicked is the outcome of an operation whose Modifier panicked.
var errPanicked = errors.New("kv: the Modifier panicked")

// replaceCold carries an RMW out whose record has come from the device. As with
// attempt, cold says that it needs another one.
func (s *Session) replaceCold(f *pendingOp, im hlog.Image, found bool) (where coldRecord, cold bool) {
	op := f.op
	switch s.tryReplace(f, im, found) {
	case complete:
		return coldRecord{}, false
	case needsSpace:
		if op.Err = s.waitForSpace(); op.Err != nil {
			return coldRecord{}, false
		}
	}
	// The chain has moved on, or may have while we waited: from the start.
	return s.attempt(op, f.hash, f.keep, f)
}

// tryReplace is replace for a record that came from the device, if its chain is
// as it was when the pending operation departed.
func (s *Session) tryReplace(f *pendingOp, im hlog.Image, found bool) outcome {
	s.enter()
	defer s.leaveAnyhow()
	if s.view.guarded {
		stripe, claim, err, ok := s.pass(f.op.Kind, f.hash)
		if !ok || err != nil {
			return retry
		}
		if stripe != nil {
			defer stripe.release(claim)
		}
	}
	slot, e, err := s.view.index.findOrInsert(f.hash)
	if err != nil {
		f.op.Err = err
		return complete
	}
	if slot.p == nil || e != f.at.entry || e.address() < s.log.Begin() { // see Clear
		return retry
	}
	result := s.replace(f.op, slot, e, im.Value, im.Expires, found)
	if result == complete {
		s.tookEffect(f.op.Kind, f)
	}
	return result
}

// completePending ends a pending operation and its operation.
func (s *Session) completePending(n uint32, err error, tier int) {
	f := &s.pending[n]
	f.op.Err = err
	switch {
	case f.op.Kind == OpRead && tier == fromCache:
		s.counts.readsCache.inc()
	case f.op.Kind == OpRead:
		s.counts.readsTier[min(tier, MaxTiers-1)].inc()
	case s.ordered(f.op.Kind):
		s.pendingRMWs[hashByte(f.hash)]--
		s.allPendingRMWs--
		f.serial.Store(0)
	}
	if f.stream {
		s.streamed--
		s.polled.push(f.op)
	} else {
		s.batch--
		s.noteError(err)
	}
	f.op = nil
	if cap(f.whole) > keepBuffer {
		f.whole = nil
	}
	s.free = append(s.free, n)
}

// completeWordRead is completeRead for a read of a record with an 8-byte key and value: see
// words.go. It is what nearly all reads find, the record that was looked for, as
// it was written first. If the record is anything else, completeWordRead returns false,
// having done nothing.
func (s *Session) completeWordRead(c *device.Completion) bool {
	n := uint32(c.Tag)
	f := &s.pending[n]
	op := f.op
	if c.Err != nil || op.Kind != OpRead || f.keep != 0 || cap(op.Value) < 8 || len(f.buf) != s.record {
		return false
	}
	r := hlog.RecordAt(unsafe.Pointer(unsafe.SliceData(f.buf))) // as long as one in memory, and nobody else's
	if h := r.Header(); !h.Used() || !h.Plain() || r.Word0() != loadWord(op.Key) {
		return false
	}
	s.counts.deviceReads.inc()
	if s.cache != nil {
		s.cache.Add(f.at.address, f.buf)
	}
	op.Value = op.Value[:8] // which stores no pointer, as append would
	*(*uint64)(unsafe.Pointer(unsafe.SliceData(op.Value))) = r.Word1()
	op.Expires = 0
	s.completePending(n, nil, int(c.Tier))
	return true
}
