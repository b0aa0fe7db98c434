package device

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// tieredQueue is one queue on each tier. An operation's index in ops is its tag in the
// tiers' queues.
type tieredQueue struct {
	t       *Tiered
	depth   int
	queues  []Queue    // by tier; nil where NewQueue failed
	pending []int      // by tier: pending operations
	badRead []int      // by tier: consecutive failed reads
	late    [][]uint32 // by tier: pending operations that its full queue has not taken yet
	ops     []tieredOp
	free    []uint32
	// ready holds events for the next Poll. An operation has at most two events, so twice
	// the depth is enough.
	ready    completions
	over     int    // operations whose last event is in ready: not in ops, but still pending
	dirty    uint32 // set of the tiers with operations enqueued since Submit
	next     int    // tier that Poll asks first
	counts   [MaxTiers]tierCounts
	counters []tierCounters // by tier; counts are added to it, for Metrics
	reads    uint32         // begun so far: see sampled
	scratch  [16]Completion
	all      bool // of all tiers, not only of those that something is copied from
	closed   bool

	echoes     []echoes // by tier
	freeEchoes []uint32 // free entries of ops for echoes
	copies     [][]byte // buffers of echoes: of ops from depth on
	echoing    int      // pending echoes
}

// tieredOp is one operation, from Read or Write until its last event.
type tieredOp struct {
	tag   uint64
	addr  int64
	buf   []byte
	err   error         // of the tiers that failed the operation
	began time.Duration // see sinceEpoch; 0: not measured
	// Of a write, sets of tiers: to which it was sent, which will answer for it, on which it is
	// pending, and which have stored it and answer.
	set, answering, pending, held uint32
	tier                          uint8 // of a read: where it is pending
	state                         opState
}

type opState uint8

const (
	opFree opState = iota
	opRead
	opWrite
	opCommitted // a write whose Committed event has been made
	opEcho      // see tiered_backlog.go
)

// epoch is the origin of sinceEpoch.
var epoch = time.Now()

// sinceEpoch returns the present time, above 0.
func sinceEpoch() time.Duration { return time.Since(epoch) + 1 }

func newTieredQueue(t *Tiered, depth int) *tieredQueue {
	n := len(t.tiers)
	q := &tieredQueue{
		t: t, depth: depth,
		queues: make([]Queue, n), pending: make([]int, n), badRead: make([]int, n), late: make([][]uint32, n),
		ops: make([]tieredOp, depth), free: make([]uint32, depth),
		ready:    newCompletions(2 * depth),
		counters: make([]tierCounters, n), echoes: make([]echoes, n),
	}
	for i := range q.free {
		q.free[i] = uint32(depth - 1 - i)
	}
	return q
}

// open makes tier i's queue if there is none yet. A tier whose NewQueue fails leaves the
// set, unless the process is short of descriptors or memory: then only this queue does
// without the tier for now.
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

// admit returns an error if no operation can be added.
func (q *tieredQueue) admit() error {
	if q.closed {
		return ErrClosed
	}
	if len(q.free) <= q.over {
		return ErrQueueFull
	}
	return nil
}

// keep stores an event for the next Poll.
func (q *tieredQueue) keep(c Completion) {
	if c.Event != Committed {
		q.over++
	}
	q.ready.push(c)
}

// take adds an operation and returns its index.
func (q *tieredQueue) take(buf []byte, addr int64, tag uint64, state opState) uint32 {
	id := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	op := &q.ops[id]
	op.tag, op.addr, op.buf, op.state = tag, addr, buf, state
	return id
}

// hand gives an operation to tier i. If the tier's queue is full, though it has fewer
// operations pending than its depth, the operation and all after it wait in late.
func (q *tieredQueue) hand(i int, id uint32) error {
	if len(q.late[i]) == 0 {
		if err := q.enqueue(i, id); !errors.Is(err, ErrQueueFull) {
			return err
		}
	}
	q.late[i] = append(q.late[i], id)
	return nil
}

func (q *tieredQueue) enqueue(i int, id uint32) error {
	op := &q.ops[id]
	if op.state == opRead {
		return q.queues[i].Read(op.buf, op.addr, uint64(id))
	}
	return q.queues[i].Write(op.buf, op.addr, uint64(id))
}

// handLate gives tier i the operations that wait for room in its queue.
func (q *tieredQueue) handLate(i int) {
	for len(q.late[i]) > 0 {
		id := q.late[i][0]
		err := q.enqueue(i, id)
		if errors.Is(err, ErrQueueFull) {
			return
		}
		q.late[i] = slices.Delete(q.late[i], 0, 1)
		q.dirty |= 1 << i
		if err == nil {
			continue
		}
		if e, ok := q.settled(i, Completion{Tag: uint64(id), Err: err}); ok {
			q.keep(e)
		}
	}
}

// settled handles the end of one operation on tier i, and returns the event that follows
// from it, if any.
func (q *tieredQueue) settled(i int, c Completion) (Completion, bool) {
	if c.Tag >= uint64(len(q.ops)) || c.Event == Committed {
		return Completion{}, false // a tier that has tiers itself may still read the buffer
	}
	id := uint32(c.Tag)
	op := &q.ops[id]
	err := c.Err
	if err == nil && c.N != len(op.buf) {
		err = fmt.Errorf("device: tier %s: %d of %d bytes at %d", q.t.tiers[i].name, c.N, len(op.buf), op.addr)
	}
	switch {
	case op.state == opRead && int(op.tier) == i:
		q.pending[i]--
		return q.settleRead(id, i, err)
	case op.pending&(1<<i) != 0:
		q.pending[i]--
		op.pending &^= 1 << i
		q.wrote(op, i, err)
		if op.state == opEcho {
			q.echoed(i, id)
			return Completion{}, false
		}
		q.counters[i].behind.Add(-int64(len(op.buf)))
		return q.settle(id)
	}
	return Completion{}, false // not an operation of this queue
}

// end removes an operation whose last event is c, and returns c.
func (q *tieredQueue) end(id uint32, c Completion) Completion {
	op := &q.ops[id]
	op.state, op.buf, op.err, op.began = opFree, nil, nil, 0
	op.set, op.answering, op.held = 0, 0, 0 // pending is empty
	q.free = append(q.free, id)
	return c
}

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

// ring submits the operations of tier i. A tier whose Submit fails leaves the set; of the
// last tier it is an error.
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

// Poll implements Queue. The tiers' completions are polled into done and turned into this
// queue's events in place: an operation's end on one tier makes at most one event.
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
		if q.next++; q.next >= len(q.queues) {
			q.next = 0
		}
		i := q.next
		if q.pending[i] == 0 || n == len(done) {
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
		// Start reads that fell through at once. If this fails, the next Submit fails
		// too and returns the error.
		_ = q.Submit()
	}
	q.publish()
	return n
}

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

// drain waits until only echoes are pending.
func (q *tieredQueue) drain(ctx context.Context) error {
	for len(q.free) < q.depth {
		if err := q.Wait(ctx); err != nil {
			return err
		}
		q.Poll(q.scratch[:])
	}
	return nil
}
