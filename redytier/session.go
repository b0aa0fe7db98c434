package redytier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/epoch"
)

// MaxDepth bounds the operations that one session may have under way.
const MaxDepth = 1 << 14

// Session is one goroutine's way to the cache, and the fast one: it owns a
// queue pair to each VM and steps its own poller, so that an operation crosses
// no channel, wakes no goroutine and allocates nothing. It has the shape of a
// [device.Queue], with cache addresses.
//
// Order: operations of one session on overlapping bytes execute in the order of
// their calls, wherever their region moves meanwhile: the bytes of a region travel
// on one connection, first in, first out. Nothing is promised across regions, nor
// about the order of completions (A4), but for Barrier and Config.StrictOrder. A
// request over several regions is carried out region by region; only 8 aligned bytes
// are written or read as one (A9).
//
// A session that has operations under way has to be polled: a region that moves
// waits for those that began before. One that has none may be left alone for as long
// as its owner likes. It keeps the connections it had, whose rings are memory of the
// servers, and finds what has changed with its next operation: one connection for
// each VM, and one more where the data path was reconfigured since. Who has no use for
// a session closes it.
type Session struct {
	cache   *Cache
	id      uint64        // at random, for servers to know it by
	handle  *epoch.Handle // inside from the first operation under way to the last
	table   *table        // that the session has taken notice of
	gone    error         // the cache was deleted
	wrap    int64         // where requests run on at address 0; 0: nowhere
	longest int64         // most bytes of a request to one region at a time
	conns   []*conn
	queues  []regionQueue // by virtual region
	// draining says that a new table waits for what was issued before it.
	draining bool

	ops     []op     // by slot
	errs    []error  // by slot: the first of an operation that failed
	free    []uint32 // slots not in use
	ready   fifo[uint32]
	rest    piece // of a request that a full connection stopped
	stopped bool  // there is such a rest, or a barrier
	barrier bool  // everything under way has to end
	held    int   // requests that queues hold
	holding []int // queues that hold some
	pending int   // operations whose completion is not polled yet
	parker  *parker
	waits   atomic.Bool   // requests to what does not answer are held: Config.WaitForLost
	woken   chan struct{} // holds a token while there is something to look at
	counts  counters
	closed  bool

	// Under the cache's mu: connections made by others, for refresh, and how often
	// one to a grant has failed (see conn.generation).
	inbox       []*conn
	generations map[*grant]uint32
	unsettled   sync.WaitGroup // failed connections that their servers may not know of yet
}

var _ device.Queue = (*Session)(nil)

// op is the state of one operation: half a cache line.
type op struct {
	tag    uint64
	n      int
	left   int // bytes whose fate is not known yet
	write  bool
	failed bool // with the error in Session.errs
}

// piece is a request, or what is left of one, from an address on.
type piece struct {
	op    uint32
	write bool
	buf   []byte
	addr  int64
}

// Read fills dst from addr. A request outside the cache is refused here, with
// ErrOutOfRange, and has no effect; an empty one completes (A10).
// device.ErrQueueFull: Submit, Poll, and try again.
func (s *Session) Read(dst []byte, addr int64, tag uint64) error {
	return s.start(dst, addr, false, tag)
}

// Write stores src at addr. src belongs to the session until the completion.
func (s *Session) Write(src []byte, addr int64, tag uint64) error {
	return s.start(src, addr, true, tag)
}

func (s *Session) start(buf []byte, addr int64, write bool, tag uint64) error {
	if s.closed {
		return device.ErrClosed
	}
	if s.pending == 0 {
		s.handle.Enter()
	}
	err := s.admit(buf, addr, write, tag)
	if s.pending == 0 { // refused
		s.handle.Leave()
	}
	return err
}

func (s *Session) admit(buf []byte, addr int64, write bool, tag uint64) error {
	if s.table != s.cache.table.Load() {
		s.refresh()
	}
	if s.gone != nil {
		return s.gone
	}
	n, t := int64(len(buf)), s.table
	if addr < 0 || n > t.capacity || (addr > t.capacity-n && s.wrap == 0) {
		return s.outOfRange(len(buf), addr)
	}
	if len(s.free) == 0 || s.stopped {
		return device.ErrQueueFull
	}
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	o := &s.ops[slot]
	o.tag, o.n, o.left, o.write = tag, len(buf), len(buf), write
	s.pending++
	if n == 0 {
		s.ready.push(slot)
		return nil
	}
	// Nearly every request is to one region that nothing is the matter with.
	at := addr & t.mask
	if i := addr >> t.shift; i < int64(len(s.queues)) && at+n <= t.mask+1 && n <= s.longest && (s.wrap == 0 || addr <= s.wrap-n) {
		if q := &s.queues[i]; !q.slow(write) && q.conn.access(slot, write, buf, q, at) {
			return nil
		}
	}
	s.issue(piece{op: slot, write: write, buf: buf, addr: addr})
	return nil
}

func (s *Session) outOfRange(n int, addr int64) error {
	return fmt.Errorf("%w: %d bytes at %d of %d", ErrOutOfRange, n, addr, s.table.capacity)
}

// issue hands p to the connections, region by region, and what is large in pieces. What
// a full connection does not take is kept until it has room; the session accepts nothing
// new before, so that program order stands.
func (s *Session) issue(p piece) {
	for {
		i := p.addr >> s.table.shift
		if i >= int64(len(s.queues)) { // the cache has shrunk since p was accepted
			s.finish(p.op, len(p.buf), s.outOfRange(len(p.buf), p.addr))
			return
		}
		at := p.addr & s.table.mask
		part := p.buf
		room := min(s.table.mask+1-at, s.longest)
		if s.wrap > 0 {
			room = min(room, s.wrap-p.addr)
		}
		if int64(len(part)) > room {
			part = part[:room]
		}
		if s.cache.cfg.StrictOrder && !s.alone(&s.queues[i]) || !s.queues[i].issue(s, request{op: p.op, write: p.write, buf: part, offset: at}) {
			s.rest, s.stopped = p, true
			return
		}
		if len(part) == len(p.buf) {
			return
		}
		p.buf = p.buf[len(part):]
		if p.addr += int64(len(part)); p.addr == s.wrap {
			p.addr = 0
		}
	}
}

// finish settles n bytes of an operation. With the last of them it is ready to
// be polled.
func (s *Session) finish(slot uint32, n int, err error) {
	o := &s.ops[slot]
	if err != nil && !o.failed {
		o.failed, s.errs[slot] = true, err
	}
	if o.left -= n; o.left == 0 {
		s.ready.push(slot)
	}
}

// Submit rings the doorbell of every connection that has something new.
func (s *Session) Submit() error {
	if s.closed {
		return device.ErrClosed
	}
	s.ring()
	return nil
}

// step polls every connection once and says whether any had news.
func (s *Session) step() bool {
	if s.table != s.cache.table.Load() {
		s.refresh()
	}
	worked := false
	for _, c := range s.conns {
		if c.poll() {
			worked = true
		}
	}
	if len(s.holding) > 0 && s.release() {
		worked = true
	}
	if s.stopped {
		s.resume()
	}
	if s.draining {
		s.drained()
	}
	return worked
}

// release sends what queues need not hold any longer, and says whether there was
// anything.
func (s *Session) release() bool {
	n, holding := 0, s.holding[:0]
	for _, i := range s.holding {
		q := &s.queues[i]
		if n += q.release(s); len(q.held) > 0 {
			holding = append(holding, i)
		}
	}
	s.holding = holding
	s.held -= n
	if n > 0 {
		s.ring()
	}
	return n > 0
}

// ring rings the doorbell of every connection that has something new.
func (s *Session) ring() {
	if len(s.conns) > 1 {
		for _, c := range s.conns {
			c.prefetch()
		}
	}
	for _, c := range s.conns {
		c.submit()
	}
}

// Poll moves completions into done and returns how many; it never blocks.
func (s *Session) Poll(done []device.Completion) int {
	n := s.drain(done)
	for n < len(done) && s.pending > 0 {
		worked := s.step()
		k := s.drain(done[n:])
		n += k
		if !worked && k == 0 {
			break
		}
	}
	return n
}

// drain moves what is ready into done.
func (s *Session) drain(done []device.Completion) int {
	n := min(len(done), s.ready.len())
	if n == 0 {
		return 0
	}
	var sum tally
	for i := range done[:n] {
		slot := s.ready.pop()
		o, c := &s.ops[slot], &done[i]
		c.Tag, c.N, c.Err, c.Event, c.Tier = o.tag, o.n, nil, device.Done, 0
		if o.failed {
			c.N, c.Err = 0, s.errs[slot]
			o.failed, s.errs[slot] = false, nil
		}
		sum.add(o.write, o.n, c.Err)
		s.free = append(s.free, slot)
	}
	s.counts.add(&sum)
	if s.pending -= n; s.pending == 0 {
		if s.draining {
			s.drained()
		}
		s.handle.Leave()
		s.barrier, s.stopped = false, false
	}
	return n
}

// Wait submits and parks until Poll has something to return, or ctx ends. It
// returns at once where nothing is under way.
func (s *Session) Wait(ctx context.Context) error {
	if err := s.Submit(); err != nil {
		return err
	}
	for s.ready.len() == 0 && s.pending > 0 {
		if s.step() || s.ready.len() > 0 {
			continue
		}
		if err := s.park(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close waits for what is under way, drops its completions and releases the
// queue pairs. What failed takes no effect any more, either, when it returns, unless
// its server does not answer. Closing again does nothing.
func (s *Session) Close() error {
	var done [pollBatch]device.Completion
	return s.close(func() { s.Poll(done[:]) })
}

// close is Close; poll takes completions.
func (s *Session) close(poll func()) error {
	if s.closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	var err error
	for s.pending > 0 && err == nil {
		if err = s.Wait(ctx); err == nil {
			poll()
		}
	}
	s.closed = true
	s.unsettled.Wait()
	return errors.Join(err, s.cache.removeSession(s))
}

// This file is what a session can promise beyond the order of overlapping requests
// (A4): a barrier between requests, and a strict order of all.

// Barrier orders requests across regions: what the session is asked for before it
// has ended before anything that it is asked for afterwards begins. It does not
// wait; until it is passed the session answers device.ErrQueueFull.
func (s *Session) Barrier() {
	s.ring() // so that what is to end can
	if s.pending > 0 {
		s.barrier, s.stopped = true, true
	}
}

// resume goes on after a full connection, or at a barrier, if it can.
func (s *Session) resume() {
	if s.rest.buf != nil {
		p := s.rest
		s.rest, s.stopped = piece{}, false
		s.issue(p)
		s.ring() // it was submitted when it was new
		if s.stopped {
			return
		}
	}
	s.barrier = s.barrier && !s.quiet()
	s.stopped = s.barrier
}

// quiet says whether nothing is under way or held.
func (s *Session) quiet() bool {
	for _, c := range s.conns {
		if !c.passed(c.issued()) {
			return false
		}
	}
	return s.held == 0
}

// alone says whether nothing is under way or held but on a regionQueue's own connection,
// which keeps the order by itself.
func (s *Session) alone(q *regionQueue) bool {
	for _, c := range s.conns {
		if c != q.conn && c != q.mirror && !c.passed(c.issued()) {
			return false
		}
	}
	return s.held == len(q.held)
}
