package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/hlog"
)

// flight is a cold operation: it waits for a record from the device. Its number
// is the tag of the read.
type flight struct {
	op     *Op
	hash   uint64
	keep   int
	at     coldAt
	buf    []byte        // the record; owned by the queue from read to completion
	whole  []byte        // space that buf is cut from
	stream bool          // handed back by Poll
	serial atomic.Uint64 // its operation's number until it has its effect; 0 if it has none
}

// keepBuffer is the largest buffer that a flight keeps for the next operation: a
// session has many flights, and most values are small.
const keepBuffer = 64 << 10

// board waits until a flight is free. The first one opens the queue.
func (s *Session) board() (err error) {
	if s.queue == nil {
		if s.queue, err = s.store.dev.NewQueue(len(s.flights)); err != nil {
			s.queue = nil
			return fmt.Errorf("kv: opening a queue on the device: %w", err)
		}
	}
	for len(s.free) == 0 && err == nil {
		err = s.await(context.Background())
	}
	return err
}

// depart gives an operation a flight to where its record is. There is a free
// one, and the session is inside an epoch.
func (s *Session) depart(op *Op, hash uint64, keep int, stream bool, where coldAt) uint32 {
	n := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	f := &s.flights[n]
	f.op, f.hash, f.keep, f.stream, f.at = op, hash, keep, stream, where
	if !stream {
		s.batch++
	}
	s.counts.ops[op.Kind].inc()
	if s.ordered(op.Kind) {
		s.rmws[hashByte(hash)]++
		s.modifying++
		f.serial.Store(s.begun())
	}
	return n
}

// seek gets the record at the flight's address, from the read cache or the
// device, and follows its chain through the cache. It may land the flight and
// call the user's code: but for reads it is called outside an epoch.
func (s *Session) seek(n uint32) {
	f := &s.flights[n]
	for s.cache != nil {
		record, ok := s.cache.Get(f.whole[:0], f.at.address)
		if !ok {
			break
		}
		f.whole = record
		s.counts.cacheHits.inc()
		if _, goesOn := s.inspect(n, record, fromCache); !goesOn {
			return
		}
	}
	s.fetch(n, s.layout.Probe())
}

// fetch enqueues a read of up to size bytes at the flight's address. Records do
// not cross pages, so neither do reads: all of a page below head is written.
func (s *Session) fetch(n uint32, size int) {
	f := &s.flights[n]
	size = min(size, s.restOfPage(f.at.address))
	if cap(f.whole) < size {
		f.whole = make([]byte, size)
	}
	f.buf = f.whole[:size]
	if err := s.queue.Read(f.buf, f.at.address, uint64(n)); err != nil {
		s.land(n, fmt.Errorf("kv: reading the record at %d: %w", f.at.address, err), 0)
		return
	}
	s.unrung++
}

// restOfPage is how many bytes there are from an address to the end of its page.
func (s *Session) restOfPage(address int64) int {
	return s.log.PageSize() - int(address)&(s.log.PageSize()-1)
}

// ring submits what was enqueued.
func (s *Session) ring() {
	if s.unrung == 0 {
		return
	}
	s.unrung = 0
	if err := s.queue.Submit(); err != nil {
		// Each read still completes by itself, with its own error.
		s.store.opts.Logger.Warn("submitting reads", "err", err)
	}
}

// reap takes what has arrived and says how many records that was.
func (s *Session) reap() int {
	if len(s.free) == len(s.flights) {
		return 0
	}
	s.ring()
	if s.taken == s.arrived {
		s.taken, s.arrived = 0, s.queue.Poll(s.arrivals[:])
	}
	n := s.arrived - s.taken
	for s.taken < s.arrived {
		c := &s.arrivals[s.taken]
		s.taken++ // first: a Modifier that panics must not lose those behind it
		if !s.words || !s.arriveWord(c) {
			s.arrive(c)
		}
	}
	s.ring() // chains that go on
	return n
}

// await reaps, and parks first if nothing has arrived.
func (s *Session) await(ctx context.Context) error {
	if s.reap() > 0 {
		return nil
	}
	if err := s.queue.Wait(ctx); err != nil {
		err = fmt.Errorf("kv: waiting for reads: %w", err)
		if ctx.Err() == nil {
			s.stop(err)
		}
		return err
	}
	s.reap()
	return nil
}

// arrive goes on with a flight whose record has come.
func (s *Session) arrive(c *device.Completion) {
	n := uint32(c.Tag)
	f := &s.flights[n]
	if c.Err != nil && f.at.address < s.log.Begin() {
		s.startOver(n, int(c.Tier)) // it was truncated under the read
		return
	}
	if c.Err != nil {
		s.land(n, fmt.Errorf("kv: reading the record at %d: %w", f.at.address, c.Err), 0)
		return
	}
	// As they are now: an RMW may be on its way to another record already.
	kind, address, buf := f.op.Kind, f.at.address, f.buf
	size, goesOn := s.inspect(n, buf, int(c.Tier))
	switch {
	case size > len(buf):
		s.fetch(n, size)
		return
	case size > 0:
		s.counts.deviceReads.inc()
		if s.cache != nil && kind == OpRead { // what an RMW has replaced nobody looks for
			s.cache.Add(address, buf[:size])
		}
	}
	if goesOn {
		s.seek(n)
	}
}

// inspect looks at the record at the flight's address, whose start is b. size is
// the record's, more than b where the rest of it must be fetched, 0 if it is
// none that can be. goesOn says that it is another key's: the flight's address is
// that of the next record of the chain then. Otherwise, and unless the rest must
// be fetched, the operation has gone on.
func (s *Session) inspect(n uint32, b []byte, tier int) (size int, goesOn bool) {
	f := &s.flights[n]
	at := f.at.address
	im, size, err := s.layout.Decode(b)
	previous := im.Header.Previous()
	switch {
	case err != nil:
		s.land(n, corrupt(at, "%v", err), 0)
		return 0, false
	case size > s.restOfPage(at):
		s.land(n, corrupt(at, "%d bytes, over the page's end", size), 0)
		return 0, false
	case size > len(b):
	case f.op.trace != 0:
		return size, s.inspectTrace(n, im, tier)
	case sameKey(im.Key, f.op.Key):
		s.conclude(n, im, !im.Header.Tombstone() && !s.expired(im.Expires), tier)
	case previous >= at:
		s.land(n, corrupt(at, "previous record at %d", previous), 0)
		return 0, false
	case previous >= f.at.begin:
		f.at.address = previous
		return size, true
	default:
		s.conclude(n, hlog.Image{}, false, tier)
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

// conclude ends a flight that knows the key's record, or that there is none.
func (s *Session) conclude(n uint32, im hlog.Image, found bool, tier int) {
	op := s.flights[n].op
	if op.Kind != OpRead {
		if im.Header.Tombstone() {
			im.Expires = 0
		}
		s.concludeRMW(n, im, found, tier)
		return
	}
	op.Value, op.Expires = op.Value[:s.flights[n].keep], 0
	if !found {
		s.land(n, ErrNotFound, tier)
		return
	}
	op.Value, op.Expires = append(op.Value, im.Value...), im.Expires
	s.land(n, nil, tier)
}

// concludeRMW is conclude where the user's code is called.
func (s *Session) concludeRMW(n uint32, im hlog.Image, found bool, tier int) {
	s.goOn(n, tier, func(f *flight) (coldAt, bool) { return s.replaceCold(f, im, found) })
}

// startOver begins a flight's operation anew.
func (s *Session) startOver(n uint32, tier int) {
	s.goOn(n, tier, func(f *flight) (coldAt, bool) { return s.attempt(f.op, f.hash, f.keep, f) })
}

// goOn takes a flight's next step, which may be its last one. Should the user's
// code panic in there, the flight lands nevertheless: the session would wait for
// it for ever.
func (s *Session) goOn(n uint32, tier int, step func(*flight) (where coldAt, cold bool)) {
	f := &s.flights[n]
	returned := false
	defer func() {
		if !returned {
			s.land(n, errPanicked, tier)
		}
	}()
	where, cold := step(f)
	returned = true
	if !cold {
		s.land(n, f.op.Err, tier)
		return
	}
	f.at = where
	s.seek(n)
}

// errPanicked is the outcome of an operation whose Modifier panicked.
var errPanicked = errors.New("kv: the Modifier panicked")

// replaceCold carries an RMW out whose record has come from the device. As with
// attempt, cold says that it needs another one.
func (s *Session) replaceCold(f *flight, im hlog.Image, found bool) (where coldAt, cold bool) {
	op := f.op
	switch s.tryReplace(f, im, found) {
	case complete:
		return coldAt{}, false
	case needsSpace:
		if op.Err = s.waitForSpace(); op.Err != nil {
			return coldAt{}, false
		}
	}
	// The chain has moved on, or may have while we waited: from the start.
	return s.attempt(op, f.hash, f.keep, f)
}

// tryReplace is replace for a record that came from the device, if its chain is
// as it was when the flight departed.
func (s *Session) tryReplace(f *flight, im hlog.Image, found bool) outcome {
	s.enter()
	defer s.leaveAnyhow()
	if s.restricted {
		stripe, claim, err, ok := s.pass(f.op.Kind, f.hash)
		if !ok || err != nil {
			return again
		}
		if stripe != nil {
			defer stripe.release(claim)
		}
	}
	slot, e, err := s.table.findOrInsert(f.hash)
	if err != nil {
		f.op.Err = err
		return complete
	}
	if slot.p == nil || e != f.at.entry || e.address() < s.log.Begin() { // see Clear
		return again
	}
	result := s.replace(f.op, slot, e, im.Value, im.Expires, found)
	if result == complete {
		s.completed(f.op.Kind, f)
	}
	return result
}

// land ends a flight and its operation.
func (s *Session) land(n uint32, err error, tier int) {
	f := &s.flights[n]
	f.op.Err = err
	switch {
	case f.op.Kind == OpRead && tier == fromCache:
		s.counts.readsCache.inc()
	case f.op.Kind == OpRead:
		s.counts.readsTier[min(tier, MaxTiers-1)].inc()
	case s.ordered(f.op.Kind):
		s.rmws[hashByte(f.hash)]--
		s.modifying--
		f.serial.Store(0)
	}
	if f.stream {
		s.streamed--
		s.polled.push(f.op)
	} else {
		s.batch--
		s.note(err)
	}
	f.op = nil
	if cap(f.whole) > keepBuffer {
		f.whole = nil
	}
	s.free = append(s.free, n)
}
