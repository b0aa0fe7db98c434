package device

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// tieredQueue is one queue on each tier. Operations live in slots; a slot's
// number is the tag that the tiers' queues get, so that a completion finds its
// operation by an index.
type tieredQueue struct {
	t       *Tiered
	depth   int
	queues  []Queue    // by tier; nil where the tier gave none
	under   []int      // by tier: operations under way
	badRead []int      // by tier: reads failed in a row
	late    [][]uint32 // by tier: those of the operations under way that its full queue did not take yet
	slots   []tieredSlot
	free    []uint32
	// ready holds events that did not come out of a tier's Poll. A slot has two
	// events at most, and those that have ended count as well: twice the depth is enough.
	ready    completions
	over     int    // operations whose last event is in ready: they have no slot, and count as under way
	dirty    uint32 // set of the tiers with operations enqueued since Submit
	turn     int    // tier that Poll looks at first
	counts   [MaxTiers]tierCounts
	counters []tierCounters // by tier; what counts was added to, for Metrics
	reads    uint32         // begun so far: see sampled
	scratch  [16]Completion
	all      bool // of all tiers, not only of those that something is copied from
	closed   bool

	echoes     []echoes // by tier
	freeEchoes []uint32 // slots of echoes that are over
	copies     [][]byte // buffers of echoes, by slot from depth on
	echoing    int      // echoes that are not
}

// tieredSlot is one operation, from Read or Write until its last event.
type tieredSlot struct {
	tag   uint64
	addr  int64
	buf   []byte
	err   error         // of the tiers that failed the operation
	began time.Duration // see sinceEpoch; 0: is not measured
	// Of a write, sets of tiers: it is under way on pending, stored on held,
	// and was sent to set.
	set, pending, held uint32
	tier               uint8 // of a read: where it is under way
	state              slotState
}

type slotState uint8

const (
	slotFree slotState = iota
	slotRead
	slotWrite
	slotCommitted // a write whose Committed event has been made
	slotEcho      // see tiered_backlog.go
)

// sampled is the share of the reads whose time is measured, as a mask: a look at the
// clock takes as long as a read of memory.
const sampled = 1<<6 - 1

// epoch is what sinceEpoch counts from.
var epoch = time.Now()

// sinceEpoch is the present time, above 0.
func sinceEpoch() time.Duration { return time.Since(epoch) + 1 }

// maxBadReads is how many reads in a row a tier may fail on one queue before it
// leaves the set.
const maxBadReads = 64

func newTieredQueue(t *Tiered, depth int) *tieredQueue {
	n := len(t.tiers)
	q := &tieredQueue{
		t: t, depth: depth,
		queues: make([]Queue, n), under: make([]int, n), badRead: make([]int, n), late: make([][]uint32, n),
		slots: make([]tieredSlot, depth), free: make([]uint32, depth),
		ready:    newCompletions(2 * depth),
		counters: make([]tierCounters, n), echoes: make([]echoes, n),
	}
	for i := range q.free {
		q.free[i] = uint32(depth - 1 - i)
	}
	return q
}

// open gets tier i's queue if there is none yet. Where the tier gives none, it
// leaves the set, unless this process is short of descriptors or memory: then only this
// queue does without it for now.
func (q *tieredQueue) open(i int) error {
	if q.queues[i] != nil {
		return nil
	}
	tr := q.t.tiers[i]
	inner, err := tr.dev.NewQueue(q.depth)
	if err != nil {
		if err = MarkTransient(err); tr != q.t.last() && !errors.Is(err, ErrTransient) {
			q.t.fail(tr, fmt.Errorf("new queue: %w", err))
		}
		return err
	}
	q.queues[i] = inner
	return nil
}

// admit says whether one more operation fits.
func (q *tieredQueue) admit() error {
	if q.closed {
		return ErrClosed
	}
	if len(q.free) <= q.over {
		return ErrQueueFull
	}
	return nil
}

// keep keeps an event for the next Poll.
func (q *tieredQueue) keep(c Completion) {
	if c.Event != Committed {
		q.over++
	}
	q.ready.push(c)
}

// take fills a free slot.
func (q *tieredQueue) take(buf []byte, addr int64, tag uint64, state slotState) uint32 {
	s := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	sl := &q.slots[s]
	sl.tag, sl.addr, sl.buf, sl.state = tag, addr, buf, state
	return s
}

// Read implements Queue.
func (q *tieredQueue) Read(dst []byte, addr int64, tag uint64) error {
	if err := q.admit(); err != nil {
		return err
	}
	s := q.take(dst, addr, tag, slotRead)
	if q.reads++; q.reads&sampled == 0 {
		q.slots[s].began = sinceEpoch()
		if q.all {
			q.lookAtTiers()
		}
	}
	if c, over := q.route(s, 0); over {
		q.keep(c)
	}
	return nil
}

// Write implements Queue. A tier beyond the commit point that is too far behind fills
// the queue.
func (q *tieredQueue) Write(src []byte, addr int64, tag uint64) error {
	if err := q.admit(); err != nil {
		return err
	}
	if q.mustWait(len(src)) {
		return ErrQueueFull
	}
	s := q.take(src, addr, tag, slotWrite)
	sl := &q.slots[s]
	sl.began = sinceEpoch()
	if err := checkRange(len(src), addr); err != nil {
		sl.err = err
	} else {
		sl.set = q.t.admit(len(src), addr)
	}
	for set := sl.set; set != 0; set &= set - 1 {
		i := bits.TrailingZeros32(set)
		if q.t.detached(i) {
			q.echo(i, src, addr)
			sl = &q.slots[s] // the slots may have moved
			continue
		}
		err := q.open(i)
		if err == nil {
			err = q.hand(i, s)
		}
		if err != nil {
			q.wrote(sl, i, err)
			continue
		}
		sl.pending |= 1 << i
		q.counters[i].behind.Add(int64(len(src)))
		q.under[i]++
		q.dirty |= 1 << i
	}
	if c, ok := q.settle(s); ok {
		q.keep(c)
	}
	return nil
}

// hand gives an operation to tier i. A queue that is full, though it has fewer
// operations under way than its depth, is no failure of the tier's: the operation
// waits, and those that come after it do.
func (q *tieredQueue) hand(i int, s uint32) error {
	if len(q.late[i]) == 0 {
		if err := q.enqueue(i, s); !errors.Is(err, ErrQueueFull) {
			return err
		}
	}
	q.late[i] = append(q.late[i], s)
	return nil
}

func (q *tieredQueue) enqueue(i int, s uint32) error {
	sl := &q.slots[s]
	if sl.state == slotRead {
		return q.queues[i].Read(sl.buf, sl.addr, uint64(s))
	}
	return q.queues[i].Write(sl.buf, sl.addr, uint64(s))
}

// handLate gives tier i what waits for room in its queue.
func (q *tieredQueue) handLate(i int) {
	for len(q.late[i]) > 0 {
		s := q.late[i][0]
		err := q.enqueue(i, s)
		if errors.Is(err, ErrQueueFull) {
			return
		}
		q.late[i] = slices.Delete(q.late[i], 0, 1)
		q.dirty |= 1 << i
		if err == nil {
			continue
		}
		if e, ok := q.settled(i, Completion{Tag: uint64(s), Err: err}); ok {
			q.keep(e)
		}
	}
}

// lookAtTiers has tiers that are out started again, and reads those that are back.
func (q *tieredQueue) lookAtTiers() {
	out := false
	for i, tr := range q.t.tiers {
		if tr.out() {
			out = true
		} else {
			_ = q.open(i) // a tier that gives no queue has left the set
		}
	}
	if out {
		q.t.revive()
	}
}

// route sends a read to the first tier from number i on that answers for it.
// It returns the event that ends the read if there is none.
func (q *tieredQueue) route(s uint32, i int) (Completion, bool) {
	sl := &q.slots[s]
	for ; i < len(q.queues); i++ {
		if q.queues[i] == nil || !q.t.tiers[i].mayRead(len(sl.buf), sl.addr) {
			continue
		}
		err := q.hand(i, s)
		if err == nil {
			sl.tier = uint8(i)
			q.under[i]++
			q.dirty |= 1 << i
			return Completion{}, false
		}
		q.readFailed(sl, i, err)
	}
	if sl.err == nil || !q.t.last().holds(sl.addr) {
		// Not even the last tier was asked, whatever others have said.
		sl.err = errors.Join(sl.err,
			fmt.Errorf("device: no tier holds %d bytes at %d: %w", len(sl.buf), sl.addr, ErrNotHeld))
	}
	return q.end(s, Completion{Tag: sl.tag, Err: sl.err, Tier: sl.tier}), true
}

// hits ends what is usual, reads that tier i answered, up to the first completion
// that is anything else, and returns how many they were. They are made events where
// they are.
func (q *tieredQueue) hits(i int, done []Completion) (n int) {
	// Looked at after the reads have ended: see settleRead.
	tr := q.t.tiers[i]
	begin := max(tr.floor.Load(), tr.dev.Begin())
	bytes := 0
	for n < len(done) {
		c := &done[n]
		if c.Tag >= uint64(len(q.slots)) {
			break
		}
		sl := &q.slots[c.Tag]
		if sl.state != slotRead || int(sl.tier) != i || c.Err != nil || c.N != len(sl.buf) || sl.addr < begin {
			break
		}
		if sl.began != 0 {
			q.counters[i].reads.add(sinceEpoch() - sl.began)
			sl.began = 0
		}
		q.free = append(q.free, uint32(c.Tag))
		c.Tag, c.Event, c.Tier = sl.tag, Done, uint8(i)
		sl.state, sl.buf, sl.err = slotFree, nil, nil
		bytes += c.N
		n++
	}
	if n > 0 {
		q.under[i] -= n
		q.badRead[i] = 0
		q.counts[i].hits += uint64(n)
		q.counts[i].bytesRead += uint64(bytes)
	}
	return n
}

// settled takes the end of one operation on tier i, and returns the event that
// it amounts to, if any.
func (q *tieredQueue) settled(i int, c Completion) (Completion, bool) {
	if c.Tag >= uint64(len(q.slots)) || c.Event == Committed {
		return Completion{}, false // a tier that has tiers itself may still read the buffer
	}
	s := uint32(c.Tag)
	sl := &q.slots[s]
	err := c.Err
	if err == nil && c.N != len(sl.buf) {
		err = fmt.Errorf("device: tier %s: %d of %d bytes at %d", q.t.tiers[i].name, c.N, len(sl.buf), sl.addr)
	}
	switch {
	case sl.state == slotRead && int(sl.tier) == i:
		q.under[i]--
		return q.settleRead(s, i, err)
	case sl.pending&(1<<i) != 0:
		q.under[i]--
		sl.pending &^= 1 << i
		q.wrote(sl, i, err)
		if sl.state == slotEcho {
			q.echoed(i, s)
			return Completion{}, false
		}
		q.counters[i].behind.Add(-int64(len(sl.buf)))
		return q.settle(s)
	}
	return Completion{}, false // not an operation of ours: nothing waits for it
}

func (q *tieredQueue) settleRead(s uint32, i int, err error) (Completion, bool) {
	sl := &q.slots[s]
	switch {
	case err != nil:
		q.readFailed(sl, i, err)
	case !q.t.tiers[i].holds(sl.addr):
		// The tier let go of the address while it was being read: the bytes may
		// be those of another one.
		q.counts[i].fallThroughs++
	default:
		q.badRead[i] = 0
		q.counts[i].hits++
		q.counts[i].bytesRead += uint64(len(sl.buf))
		if sl.began != 0 {
			q.counters[i].reads.add(sinceEpoch() - sl.began)
		}
		return q.end(s, Completion{Tag: sl.tag, N: len(sl.buf), Tier: uint8(i)}), true
	}
	if sl.began != 0 {
		sl.began = sinceEpoch() // the time is the next tier's
	}
	return q.route(s, i+1)
}

// readFailed accounts for a read that tier i failed. Not to hold an address is
// no sign of illness, and a tier with holes says so often: it costs nothing.
func (q *tieredQueue) readFailed(sl *tieredSlot, i int, err error) {
	q.counts[i].fallThroughs++
	ill := !errors.Is(err, ErrNotHeld)
	if ill {
		err = fmt.Errorf("device: tier %s: %w", q.t.tiers[i].name, err)
	}
	if sl.err == nil {
		sl.err = err
	} else {
		sl.err = errors.Join(sl.err, err)
	}
	if !ill {
		return
	}
	q.counts[i].readErrors++
	if q.badRead[i]++; q.badRead[i] >= maxBadReads {
		q.badRead[i] = 0
		if tr := q.t.tiers[i]; tr != q.t.last() {
			q.t.fail(tr, fmt.Errorf("%d reads failed in a row: %w", maxBadReads, err))
		}
	}
}

// wrote accounts for the end of a write on tier i. A Refiller that does not hold
// it has made a hole, and stays in the set.
func (q *tieredQueue) wrote(sl *tieredSlot, i int, err error) {
	tr := q.t.tiers[i]
	if err != nil {
		err = fmt.Errorf("device: tier %s: write of %d bytes at %d: %w", tr.name, len(sl.buf), sl.addr, err)
		sl.err = errors.Join(sl.err, err)
		q.counts[i].writeErrors++
		if tr.refiller == nil || !errors.Is(err, ErrNotHeld) {
			q.t.fail(tr, err)
		}
	} else {
		sl.held |= 1 << i
		q.counts[i].bytesWritten += uint64(len(sl.buf))
		q.counters[i].writes.add(sinceEpoch() - sl.began)
		if tr == q.t.last() {
			q.t.recovered(tr)
		}
	}
	tr.writes.Add(-1) // after fail: see tier.writes
}

// settle returns the event that a write has come to, if it has come to one.
func (q *tieredQueue) settle(s uint32) (Completion, bool) {
	sl := &q.slots[s]
	c := Completion{Tag: sl.tag, N: len(sl.buf)}
	if sl.pending != 0 {
		before := uint32(1)<<(q.t.commit+1) - 1
		if sl.state == slotCommitted || sl.pending&before != 0 || sl.held>>q.t.commit == 0 {
			return Completion{}, false
		}
		sl.state = slotCommitted
		c.Event = Committed
		return c, true
	}
	if sl.state == slotCommitted {
		c.Event = Released
	}
	if sl.held>>(len(q.queues)-1) == 0 {
		c.N, c.Err = 0, sl.err
	}
	if sl.set != 0 {
		q.t.ended(sl.addr)
	}
	return q.end(s, c), true
}

// end frees the slot of an operation whose last event is c, and returns c.
func (q *tieredQueue) end(s uint32, c Completion) Completion {
	sl := &q.slots[s]
	sl.state, sl.buf, sl.err, sl.began = slotFree, nil, nil, 0
	sl.set, sl.held = 0, 0 // pending is empty
	q.free = append(q.free, s)
	return c
}

// Submit implements Queue.
func (q *tieredQueue) Submit() error {
	if q.closed {
		return ErrClosed
	}
	for ; q.dirty != 0; q.dirty &= q.dirty - 1 {
		if err := q.ring(bits.TrailingZeros32(q.dirty)); err != nil {
			return err
		}
	}
	return nil
}

// ring submits what tier i was given. A tier that does not take it has failed; if that is
// the last one, it is an error.
func (q *tieredQueue) ring(i int) error {
	err := q.queues[i].Submit()
	if err == nil {
		return nil
	}
	tr := q.t.tiers[i]
	if tr == q.t.last() {
		return fmt.Errorf("device: tier %s: %w", tr.name, err)
	}
	q.t.fail(tr, fmt.Errorf("submit: %w", err))
	return nil
}

// Poll implements Queue. The tiers' completions are polled into done and turned
// into this queue's events where they are: an operation's end on one tier makes
// one event at most.
func (q *tieredQueue) Poll(done []Completion) int {
	for i := range q.late {
		if len(q.late[i]) > 0 {
			q.handLate(i)
		}
	}
	n := q.ready.pop(done, q.ready.n)
	for i := range done[:n] {
		if done[i].Event != Committed {
			q.over--
		}
	}
	for range q.queues {
		if q.turn++; q.turn >= len(q.queues) {
			q.turn = 0
		}
		i := q.turn
		if q.under[i] == 0 || n == len(done) {
			continue
		}
		from, to := n, n+q.queues[i].Poll(done[n:])
		n += q.hits(i, done[from:to])
		for from = n; from < to; from++ {
			if e, ok := q.settled(i, done[from]); ok {
				done[n] = e
				n++
			}
		}
	}
	if q.dirty != 0 {
		// Reads that fell through are on their way at once. Where the doorbell
		// fails, its next use does too and says so.
		_ = q.Submit()
	}
	q.publish()
	return n
}

// Close implements Queue.
func (q *tieredQueue) Close() error {
	if q.closed {
		return nil
	}
	err := q.drain(context.Background())
	left := q.endEchoes()
	q.closed = true
	err = errors.Join(err, q.closeTiers(left))
	if len(left) > 0 {
		go q.endLeft(left)
	} else {
		q.retire()
	}
	return err
}

// drain waits until no operation is under way but echoes.
func (q *tieredQueue) drain(ctx context.Context) error {
	for len(q.free) < q.depth {
		if err := q.Wait(ctx); err != nil {
			return err
		}
		q.Poll(q.scratch[:])
	}
	return nil
}
