package kv

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
)

// pendingOp is an operation whose record is being read from the device. Its index in
// Session.pending is the tag of the read. A pending operation is issued, fetches one or more
// records of its chain, and is completed. If the chain has changed meanwhile, it may be
// attempted again.
type pendingOp struct {
	op     *Op
	hash   uint64
	keep   int           // length of the prefix of op.Value that a read appends to
	at     coldRecord    // the record that is read
	buf    []byte        // its bytes; owned by the queue while the read is pending
	whole  []byte        // the memory that buf is a part of
	stream bool          // Poll hands the operation back
	serial atomic.Uint64 // the number of an ordered operation until it has taken effect; else 0
	// earlier is the next one in an ordered operation's class: see order.go.
	earlier uint32
}

// keepBuffer is the size of the largest buffer that is kept for the next operation: a
// session has many, and most values are small.
const keepBuffer = 64 << 10

// reservePending waits until an entry of s.pending is free. The first call opens the queue.
func (s *Session) reservePending() (err error) {
	if s.queue == nil {
		if s.queue, err = s.store.dev.NewQueue(len(s.pending)); err != nil {
			s.queue = nil
			return fmt.Errorf("kv: opening a queue on the device: %w", err)
		}
	}
	for len(s.free) == 0 && err == nil {
		err = s.await(s.ctx)
	}
	return err
}

// issue makes an operation pending and returns its index in s.pending, which has a free entry.
// The session is inside an epoch.
func (s *Session) issue(op *Op, hash uint64, keep int, stream bool, where coldRecord) uint32 {
	n := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	p := &s.pending[n]
	p.op, p.hash, p.keep, p.stream, p.at = op, hash, keep, stream, where
	if !stream {
		s.batch++
	}
	s.counts.ops[op.Kind].inc()
	if s.ordered(op.Kind) {
		s.order(n)
		p.serial.Store(s.begun())
	}
	return n
}

// fetch gets the record that operation n needs from the read cache or the device. It follows
// the chain as far as the cache has its records. It may complete the operation and call the
// user's code: except for reads, the session is outside an epoch.
func (s *Session) fetch(n uint32) {
	p := &s.pending[n]
	for s.cache != nil {
		record, ok := s.cache.Get(p.whole[:0], p.at.address)
		if !ok {
			break
		}
		p.whole = record
		s.counts.cacheHits.inc()
		if _, next := s.examine(n, record, fromCache); !next {
			return
		}
	}
	s.readDevice(n, s.layout.Probe())
}

// readDevice enqueues a read of the first size bytes of operation n's record. Reads do not
// cross pages, as records do not: a page below the head address is on the device whole.
func (s *Session) readDevice(n uint32, size int) {
	p := &s.pending[n]
	size = min(size, s.restOfPage(p.at.address))
	if cap(p.whole) < size {
		p.whole = make([]byte, size)
	}
	p.buf = p.whole[:size]
	if err := s.queue.Read(p.buf, p.at.address, uint64(n)); err != nil {
		s.refused = append(s.refused, device.Completion{Tag: uint64(n), Err: err})
		return
	}
	s.unsubmitted++
}

// restOfPage returns the number of bytes from an address to the end of its page.
func (s *Session) restOfPage(address int64) int {
	return s.log.PageSize() - int(address)&(s.log.PageSize()-1)
}

// submitReads submits the enqueued reads.
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

// pollQueue handles the completed reads and returns their number.
func (s *Session) pollQueue() int {
	if len(s.free) == len(s.pending) {
		return 0
	}
	s.submitReads()
	if s.takenReads == s.polledReads {
		s.takenReads, s.polledReads = 0, s.queue.Poll(s.completions[:])
	}
	n := s.polledReads - s.takenReads + len(s.refused)
	for len(s.refused) > 0 {
		last := len(s.refused) - 1
		c := s.refused[last]
		s.refused = s.refused[:last]
		s.completeRead(&c)
	}
	for s.takenReads < s.polledReads {
		c := &s.completions[s.takenReads]
		s.takenReads++ // before the user's code can panic, so that the other completions are kept
		if !s.words || !s.completeWordRead(c) {
			s.completeRead(c)
		}
	}
	s.submitReads() // reads of the next records of chains
	return n
}

// await waits until at least one read has completed, and handles it.
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

// completeRead continues an operation with the record that was read.
func (s *Session) completeRead(c *device.Completion) {
	n := uint32(c.Tag)
	p := &s.pending[n]
	if p.op == &s.abandoned {
		s.numAbandoned--
		s.freePending(n)
		return
	}
	if c.Err != nil && p.at.address < s.log.Begin() {
		s.restart(n, int(c.Tier)) // the log was truncated during the read
		return
	}
	if c.Err != nil {
		s.completePending(n, fmt.Errorf("kv: reading the record at %d: %w", p.at.address, c.Err), 0)
		return
	}
	// examine may issue the operation's next read, which changes these.
	kind, address, buf, hash := p.op.Kind, p.at.address, p.buf, p.hash
	size, next := s.examine(n, buf, int(c.Tier))
	switch {
	case size > len(buf):
		s.readDevice(n, size)
		return
	case size > 0:
		s.counts.deviceReads.inc()
		if hash < s.view.sampled && kind == OpRead && !next {
			s.sampleSize(hash, size)
		}
		if s.cache != nil && kind == OpRead { // the record that an RMW has replaced will not be read again
			s.cache.Add(address, buf[:size])
		}
	}
	if next {
		s.fetch(n)
	}
}

// completeWordRead is completeRead for the most frequent case of an 8-byte key and value: a
// read whose first record is the key's and is neither deleted nor expiring. In other cases it
// does nothing and returns false.
func (s *Session) completeWordRead(c *device.Completion) bool {
	n := uint32(c.Tag)
	p := &s.pending[n]
	op := p.op
	if c.Err != nil || op.Kind != OpRead || p.keep != 0 || cap(op.Value) < 8 || len(p.buf) != s.record {
		return false
	}
	r := hlog.RecordAt(unsafe.Pointer(unsafe.SliceData(p.buf))) // buf has the length of a record and is not shared
	if h := r.Header(); !h.Used() || !h.Plain() || r.Word0() != loadWord(op.Key) {
		return false
	}
	s.counts.deviceReads.inc()
	if s.cache != nil {
		s.cache.Add(p.at.address, p.buf)
	}
	op.Value = op.Value[:8] // unlike append, without a write barrier
	*(*uint64)(unsafe.Pointer(unsafe.SliceData(op.Value))) = r.Word1()
	op.Expires = 0
	s.completePending(n, nil, int(c.Tier))
	return true
}

// examine looks at operation n's record, which begins with b. size is the record's size, or 0
// if it is damaged. If size exceeds len(b), the rest must be read. Otherwise, if next is true,
// the record is another key's, and operation n needs the next record of the chain; if next is
// false, the operation is complete or has been continued.
func (s *Session) examine(n uint32, b []byte, tier int) (size int, next bool) {
	p := &s.pending[n]
	at := p.at.address
	im, size, err := s.layout.Decode(b)
	previous := im.Header.Previous()
	switch {
	case err != nil:
		s.completePending(n, corrupt(at, "%v", err), 0)
		return 0, false
	case size > s.restOfPage(at):
		s.completePending(n, corrupt(at, "%d bytes, which extend beyond the page", size), 0)
		return 0, false
	case size > len(b):
	case p.op.trace != 0:
		return size, s.examineTrace(n, im, tier)
	case sameKey(im.Key, p.op.Key):
		s.resolve(n, im, !im.Header.Tombstone() && !s.expired(im.Expires), tier)
	case previous >= at:
		s.completePending(n, corrupt(at, "its link leads to %d", previous), 0)
		return 0, false
	case previous >= p.at.begin:
		p.at.address = previous
		return size, true
	default:
		s.resolve(n, hlog.Image{}, false, tier)
	}
	return size, false
}

// resolve continues operation n with the key's record, or without one if found is false.
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

// resolveRMW is resolve for operations that change the record. It may call the user's code.
func (s *Session) resolveRMW(n uint32, im hlog.Image, found bool, tier int) {
	s.step(n, tier, func(p *pendingOp) (coldRecord, bool) { return s.replaceCold(p, im, found) })
}

// restart attempts operation n again from the beginning of its chain.
func (s *Session) restart(n uint32, tier int) {
	s.step(n, tier, func(p *pendingOp) (coldRecord, bool) { return s.attempt(p.op, p.hash, p.keep, p) })
}

// step continues operation n by a function that returns as attempt does. If the user's code
// panics in the function, the operation is completed nevertheless: the session would wait for
// it for ever.
func (s *Session) step(n uint32, tier int, next func(*pendingOp) (where coldRecord, cold bool)) {
	p := &s.pending[n]
	returned := false
	defer func() {
		if !returned {
			s.completePending(n, errPanicked, tier)
		}
	}()
	before := s.ctx
	if p.stream {
		s.ctx = s.submits
	}
	where, cold := next(p)
	s.ctx = before
	returned = true
	if !cold {
		s.completePending(n, p.op.Err, tier)
		return
	}
	p.at = where
	s.fetch(n)
}

// errPanicked is the error of an operation whose Modifier has panicked.
var errPanicked = errors.New("kv: the Modifier panicked")

// replaceCold executes an RMW whose record was read from the device. It returns as attempt
// does.
func (s *Session) replaceCold(p *pendingOp, im hlog.Image, found bool) (where coldRecord, cold bool) {
	op := p.op
	switch s.tryReplace(p, im, found) {
	case complete:
		return coldRecord{}, false
	case needsSpace:
		if op.Err = s.waitForSpace(); op.Err != nil {
			return coldRecord{}, false
		}
	}
	// The chain has or may have a newer record.
	return s.attempt(op, p.hash, p.keep, p)
}

// tryReplace is replace for a record that was read from the device, if the chain has no newer
// record than when the operation was issued.
func (s *Session) tryReplace(p *pendingOp, im hlog.Image, found bool) outcome {
	s.enter()
	defer s.leaveAnyhow()
	if s.view.guarded {
		stripe, claim, err, ok := s.pass(p.op.Kind, p.op.Key, p.hash)
		if !ok || err != nil {
			return retry
		}
		if stripe != nil {
			defer stripe.release(claim)
		}
	}
	place, e, err := s.view.index.FindOrInsert(p.hash)
	if err != nil {
		p.op.Err = err
		return complete
	}
	if place.None() || e != p.at.entry || p.at.address < s.log.Begin() { // see Clear and Eviction
		return retry
	}
	result := s.replace(p.op, place, e, im.Value, im.Expires, found)
	if result == complete {
		s.tookEffect(p.op.Kind, p)
	}
	return result
}

// completePending completes operation n with err and frees its entry.
func (s *Session) completePending(n uint32, err error, tier int) {
	p := &s.pending[n]
	p.op.Err = err
	switch {
	case p.op.Kind == OpRead && tier == fromCache:
		s.counts.readsCache.inc()
	case p.op.Kind == OpRead:
		s.counts.readsTier[min(tier, MaxTiers-1)].inc()
	case s.ordered(p.op.Kind):
		s.unorder(n)
		p.serial.Store(0)
	}
	if p.stream {
		s.streamed--
		s.polled.push(p.op)
	} else {
		s.batch--
		s.noteError(err)
	}
	s.freePending(n)
}

// freePending frees an entry of s.pending.
func (s *Session) freePending(n uint32) {
	p := &s.pending[n]
	p.op = nil
	if cap(p.whole) > keepBuffer {
		p.whole = nil
	}
	s.free = append(s.free, n)
}

// abandonBatch completes the pending operations of a plain call or batch with err, without
// effect. Their entries stay in use until the device has completed the reads, whose results
// are ignored.
func (s *Session) abandonBatch(err error) {
	for i := range s.pending {
		p := &s.pending[i]
		if p.op == nil || p.stream || p.op == &s.abandoned {
			continue
		}
		p.op.Err = err
		if s.ordered(p.op.Kind) {
			s.unorder(uint32(i))
			p.serial.Store(0)
		}
		p.op = &s.abandoned
		s.numAbandoned++
		s.batch--
		s.noteError(err)
	}
}
