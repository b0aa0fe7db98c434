package redytier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/epoch"
	"github.com/redykv/redykv/internal/fabric"
)

// MaxDepth bounds a session's pending operations.
const MaxDepth = 1 << 14

// Session is one goroutine's queue to the cache. It owns queue pairs to the VMs that it uses and
// polls them itself, so that an operation crosses no channel, wakes no goroutine and allocates
// nothing. It is a [device.Queue] with cache addresses.
//
// A connection is opened when it is first needed. If b is 1, each region is imported over it when it
// is first needed. The requests that need either wait, and others do not. They end with [ErrNoRoom]
// if the server has no room for the connection, and with [ErrRegionUnavailable] if it is not open,
// or the region not imported, after ten seconds.
//
// Operations of one session on overlapping bytes execute in the order of their calls, also
// while their region moves. Nothing is promised across regions, or about the order of
// completions (A4), except by Barrier and Config.StrictOrder. A request over several regions
// executes region by region; only 8 aligned bytes are read or written atomically (A9).
//
// A session with pending writes must be polled: a region that moves waits for writes that began
// before. One with pending reads should be: the memory that a region has left is returned
// afterwards, and Migrate fails if that takes longer than ten seconds. An idle session need not
// be polled. It keeps its connections, whose rings use memory of the servers, and sees changes
// with its next operation. Close a session that is not needed any more.
type Session struct {
	cache   *Cache
	id      uint64        // random, identifies the session to servers
	handle  *epoch.Handle // entered while operations are pending
	writes  *epoch.Handle // entered while writes are pending
	table   *table        // current table of the session
	gone    error         // ErrDeleted after the cache was deleted
	wrap    int64         // address after which requests continue at 0; 0: none
	longest int64         // most bytes of one request to a region
	queues  []regionQueue // by virtual region

	conns      map[*endpoint]*conn // open connections, and failed ones that are not replaced yet
	unopened   *conn               // of queues whose connection is not opened yet
	busy       []*conn             // connections with requests; some of the first may be idle
	removals   uint64              // table.removals when conns was last checked
	leaving    bool                // connections of conns to removed endpoints have to be closed
	waited     bool                // value of waits when queues were bound
	draining   bool                // requests from before the current table are pending
	lagging    []*conn             // with conn.behind
	completion [pollBatch]fabric.Completion

	ops     []op     // pending operations, by index
	errs    []error  // by index: first error of a failed operation
	free    []uint32 // unused indexes of ops
	ready   fifo[uint32]
	rest    piece // rest of a request that a full connection stopped
	stopped bool  // there is a rest or a barrier
	barrier bool  // new operations wait for the pending ones
	held    int   // requests held by queues
	holding []int // queues that hold requests
	pending int   // operations whose completion was not polled yet
	writing int   // writes of them
	timing  timing
	bed     bed
	waits   atomic.Bool // requests to lost regions wait: Config.WaitForLost
	counts  counters
	closed  bool

	// Guarded by Cache.mu: connections dialled and regions imported by other goroutines, the
	// state of connections as other goroutines see it, and the number of failed connections per
	// grant (see conn.generation).
	inbox       []*conn
	imports     []imported
	links       map[*endpoint]*link
	generations map[*grant]uint32
	arrived     atomic.Bool    // inbox or imports is not empty
	unsettled   sync.WaitGroup // failed connections that servers may not have ended yet
}

var _ device.Queue = (*Session)(nil)

// op is one pending operation: half a cache line.
type op struct {
	tag   uint64
	n     int
	left  int // bytes that are not settled yet
	write bool
	notes notes
}

// notes say what its completion has to look at. Most operations have none.
type notes uint8

const (
	opFailed notes = 1 << iota // with the error in Session.errs
	opTimed                    // see timing
)

// piece is a request, or the rest of one, from an address on.
type piece struct {
	op    uint32
	write bool
	buf   []byte
	addr  int64
}

// Read fills dst from addr. A request outside the cache fails with ErrOutOfRange and has no
// effect; an empty one completes (A10). After device.ErrQueueFull, Submit and Poll before
// trying again.
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
	if write && s.writing == 0 {
		s.writes.Enter()
	}
	err := s.admit(buf, addr, write, tag)
	if err != nil {
		s.leave()
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
	index := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	o := &s.ops[index]
	o.tag, o.n, o.left, o.write = tag, len(buf), len(buf), write
	s.pending++
	if write {
		s.writing++
	}
	if s.timing.armed {
		o.notes = opTimed
		s.timing.begin(write, s.pending)
	}
	if n == 0 {
		s.ready.push(index)
		return nil
	}
	// Fast path: a request to one region that is not held back.
	at := addr & t.mask
	if i := addr >> t.shift; i < int64(len(s.queues)) && at+n <= t.mask+1 && n <= s.longest && (s.wrap == 0 || addr <= s.wrap-n) {
		if q := &s.queues[i]; !q.slow(write) && q.conn.access(index, write, buf, q, at) {
			return nil
		}
	}
	s.issue(piece{op: index, write: write, buf: buf, addr: addr})
	return nil
}

func (s *Session) outOfRange(n int, addr int64) error {
	return fmt.Errorf("%w: %d bytes at %d of %d", ErrOutOfRange, n, addr, s.table.capacity)
}

// issue gives p to connections region by region, in pieces of at most longest bytes. If a
// connection is full, the rest waits in s.rest, and the session accepts nothing new until
// it is issued, which keeps program order.
func (s *Session) issue(p piece) {
	if s.arrived.Load() {
		s.arrive()
	}
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
		if s.cache.cfg.StrictOrder && !s.alone(&s.queues[i]) || !s.queues[i].issue(s, request{share: share{op: p.op}, write: p.write, buf: part, offset: at}) {
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

// finish settles n bytes of an operation. After the last byte it is ready to be polled.
func (s *Session) finish(index uint32, n int, err error) {
	o := &s.ops[index]
	if err != nil && o.notes&opFailed == 0 {
		o.notes |= opFailed
		s.errs[index] = err
	}
	if o.left -= n; o.left == 0 {
		s.ready.push(index)
	}
}

// Submit rings the doorbell of every connection with new requests.
func (s *Session) Submit() error {
	if s.closed {
		return device.ErrClosed
	}
	s.ring()
	return nil
}

// step polls every connection once and reports whether any had completions.
func (s *Session) step() bool {
	if s.table != s.cache.table.Load() {
		s.refresh()
	}
	if s.arrived.Load() {
		s.arrive()
	}
	worked := s.pollBusy()
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

// fewConns is the number of connections that a session polls without asking which of them are
// idle.
const fewConns = 4

// pollBusy polls every busy connection once and reports whether any had completions.
func (s *Session) pollBusy() bool {
	worked := false
	for _, c := range s.busy {
		if c.poll() {
			worked = true
		}
	}
	if len(s.busy) > fewConns {
		s.busy = slices.DeleteFunc(s.busy, func(c *conn) bool {
			c.listed = c.busy() || c.dirty && c.err == nil
			return !c.listed
		})
	}
	return worked
}

// release issues requests that need not be held any longer, and reports whether there were
// any.
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

// ring rings the doorbell of every connection with new requests.
func (s *Session) ring() {
	if len(s.busy) > 1 {
		for _, c := range s.busy {
			c.prefetch()
		}
	}
	for _, c := range s.busy {
		c.submit()
	}
}

// Poll moves completions into done and returns their number. It never blocks.
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

// drain moves finished operations into done.
func (s *Session) drain(done []device.Completion) int {
	n := min(len(done), s.ready.len())
	if n == 0 {
		return 0
	}
	var sum tally
	for i := range done[:n] {
		index := s.ready.pop()
		o, c := &s.ops[index], &done[i]
		c.Tag, c.N, c.Err, c.Event, c.Tier = o.tag, o.n, nil, device.Done, 0
		if o.notes != 0 {
			s.noted(index, c)
		}
		sum.add(o.write, o.n, c.Err)
		if o.write {
			s.writing--
		}
		s.free = append(s.free, index)
	}
	s.counts.add(&sum)
	if s.timing.passed += n; s.timing.passed >= s.timing.interval || s.timing.restart.Load() {
		s.timing.due()
	}
	if s.pending -= n; s.pending == 0 {
		if s.draining {
			s.drained()
		}
		s.barrier, s.stopped = false, false
	}
	s.leave()
	return n
}

// noted completes an operation that has notes.
func (s *Session) noted(index uint32, c *device.Completion) {
	o := &s.ops[index]
	failed := o.notes&opFailed != 0
	if failed {
		c.N, c.Err = 0, s.errs[index]
		s.errs[index] = nil
	}
	if o.notes&opTimed != 0 {
		s.timing.end(o.write, failed)
	}
	o.notes = 0
}

// leave leaves the epochs of operations that are not pending.
func (s *Session) leave() {
	if s.writing == 0 {
		if len(s.lagging) > 0 {
			s.catchUp(true)
		}
		s.writes.Leave()
	}
	if s.pending == 0 {
		s.handle.Leave()
	}
}

// Wait submits and blocks until Poll has completions, or ctx ends. It returns at once if
// nothing is pending.
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

// Close waits for pending operations, drops their completions and releases the queue pairs.
// When it returns, failed operations have no effect any more. It waits for both ten seconds at most.
// Closing again does nothing.
func (s *Session) Close() error {
	var done [pollBatch]device.Completion
	return s.close(func() { s.Poll(done[:]) })
}

// failBusy fails the connections with requests in flight.
func (s *Session) failBusy(cause error) {
	for _, c := range s.conns {
		if c.busy() {
			c.fail(cause)
		}
	}
}

// close is Close with poll to take completions.
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
	if err != nil {
		// What is in flight may still have an effect, as of any connection that fails. When one has failed,
		// requests that waited for it are sent over others.
		for before := -1; s.pending != before; {
			before = s.pending
			s.failBusy(err)
			poll()
		}
		s.failBusy(err)
	}
	s.closed = true
	for i := range s.queues { // what the time did not suffice for
		for j := range s.queues[i].held {
			s.queues[i].held[j].forget()
		}
	}
	settled := make(chan struct{})
	go func() {
		s.unsettled.Wait()
		close(settled)
	}()
	select {
	case <-settled:
	case <-ctx.Done(): // the cache goes on: see endEarlier
	}
	return errors.Join(err, s.cache.removeSession(s))
}
