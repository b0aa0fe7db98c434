package device

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
)

// faultyQueue passes operations to the inner queue, or completes them itself, and delays
// completions.
type faultyQueue struct {
	f       *Faulty
	inner   Queue
	depth   int
	rand    *rand.Rand
	below   map[uint64]*faultyOp // on the inner queue, by the tag given to it
	next    uint64               // tag for the inner queue
	held    []heldCompletion     // in order of arrival
	pending int                  // operations whose last event was not polled
	closed  bool
}

// faultyOp is one operation until its last event is held.
type faultyOp struct {
	tag   uint64
	n     int   // length of the caller's buffer
	err   error // of its last event
	polls int   // by which each event is delayed
	stuck uint64
	// Of a read: the extents of the cache.
	dst  []byte
	addr int64
	over []extent
}

// heldCompletion is a completion that Poll returns later.
type heldCompletion struct {
	c     Completion
	polls int    // left before it
	stuck uint64 // number of the Release that it waits for; 0: none
}

func newFaultyQueue(f *Faulty, inner Queue, depth int) *faultyQueue {
	return &faultyQueue{
		f: f, inner: inner, depth: depth,
		rand:  rand.New(rand.NewPCG(f.opts.Load().Seed, f.queues.Add(1))),
		below: make(map[uint64]*faultyOp),
	}
}

// admit reports whether one more operation fits.
func (q *faultyQueue) admit() error {
	switch {
	case q.closed:
		return ErrClosed
	case q.pending == q.depth:
		return ErrQueueFull
	}
	return q.f.gate("queue")
}

// chance is true with probability p.
func (q *faultyQueue) chance(p float64) bool { return q.rand.Float64() < p }

// begin adds an operation and draws its delay.
func (q *faultyQueue) begin(o *FaultyOptions, tag uint64, n int) *faultyOp {
	op := &faultyOp{tag: tag, n: n}
	if q.chance(o.Delay) {
		limit := o.MaxDelay
		if limit <= 0 {
			limit = defaultMaxDelay
		}
		op.polls = 1 + q.rand.IntN(limit)
	}
	if q.chance(o.Stuck) {
		op.stuck = q.f.releases.Load() + 1
	}
	q.pending++
	return op
}

func (q *faultyQueue) Read(dst []byte, addr int64, tag uint64) error {
	if err := q.admit(); err != nil {
		return err
	}
	o := q.f.opts.Load()
	op := q.begin(o, tag, len(dst))
	if k := q.f.reads.Add(1); k == o.FailRead || q.chance(o.ReadError) {
		q.hold(op, Completion{Err: fmt.Errorf("read of %d bytes at %d: %w", len(dst), addr, ErrFault)})
		return nil
	}
	from, to := addr, addr+int64(len(dst))
	if q.f.cache != nil && checkRange(len(dst), addr) == nil && addr >= q.f.Begin() {
		op.dst, op.addr = dst, addr
		op.over, from, to = q.f.cache.over(len(dst), addr)
		if len(op.over) > 0 && from == to {
			q.hold(op, Completion{})
			return nil
		}
	}
	q.pass(op, q.inner.Read(dst[from-addr:to-addr], from, q.next))
	return nil
}

func (q *faultyQueue) Write(src []byte, addr int64, tag uint64) error {
	if err := q.admit(); err != nil {
		return err
	}
	o := q.f.opts.Load()
	op := q.begin(o, tag, len(src))
	k := q.f.writes.Add(1)
	switch {
	case o.Full:
		op.err = fmt.Errorf("write of %d bytes at %d: %w", len(src), addr, ErrNoSpace)
		src = nil
	case k == o.FailWrite || q.chance(o.WriteError):
		op.err = fmt.Errorf("write of %d bytes at %d: %w", len(src), addr, ErrFault)
		src = nil
	case q.chance(o.TornWrite):
		op.err = fmt.Errorf("torn write of %d bytes at %d: %w", len(src), addr, ErrFault)
		align := q.f.Alignment()
		src = src[:q.rand.IntN(len(src)/align+1)*align]
	case q.chance(o.LostWrite):
		src = nil
	}
	switch {
	case len(src) == 0:
		q.hold(op, Completion{})
	case q.f.cache != nil && checkRange(len(src), addr) == nil:
		q.f.cache.add(src, addr)
		q.hold(op, Completion{})
	default:
		q.pass(op, q.inner.Write(src, addr, q.next))
	}
	return nil
}

// pass accounts for an operation that was given to the inner queue.
func (q *faultyQueue) pass(op *faultyOp, err error) {
	if err != nil {
		q.hold(op, Completion{Err: err})
		return
	}
	q.below[q.next] = op
	q.next++
}

// hold delays an event of an operation.
func (q *faultyQueue) hold(op *faultyOp, c Completion) {
	c.Tag, c.N = op.tag, op.n
	if c.Event != Committed {
		c.Err = errors.Join(c.Err, op.err)
		if c.Err == nil {
			patch(op.dst, op.addr, op.over)
		}
	}
	if c.Err != nil {
		c.N = 0
	}
	q.held = append(q.held, heldCompletion{c: c, polls: op.polls, stuck: op.stuck})
}

// collect polls the inner queue.
func (q *faultyQueue) collect() {
	var done [16]Completion
	for n := len(done); n == len(done); {
		n = q.inner.Poll(done[:])
		for _, c := range done[:n] {
			op := q.below[c.Tag]
			if c.Event != Committed {
				delete(q.below, c.Tag)
			}
			q.hold(op, c)
		}
	}
}

// stuck reports whether h waits for a Release.
func (q *faultyQueue) stuck(h *heldCompletion) bool { return h.stuck > q.f.releases.Load() }

func (q *faultyQueue) Submit() error {
	if q.closed {
		return ErrClosed
	}
	return q.inner.Submit()
}

func (q *faultyQueue) Poll(done []Completion) int {
	q.collect()
	n, kept := 0, q.held[:0]
	for _, h := range q.held {
		if h.polls > 0 || n == len(done) || q.stuck(&h) {
			h.polls = max(h.polls-1, 0)
			kept = append(kept, h)
			continue
		}
		if h.c.Event != Committed {
			q.pending--
		}
		done[n] = h.c
		n++
	}
	q.held = kept
	return n
}

// Wait implements Queue. The delay of the first completion ends: a caller that waits does
// not poll.
func (q *faultyQueue) Wait(ctx context.Context) error {
	if q.closed {
		return ErrClosed
	}
	for q.pending > 0 {
		released := q.f.stuckContext() // before Poll, so that no Release is missed
		q.collect()
		for i := range q.held {
			if !q.stuck(&q.held[i]) {
				q.held[i].polls = 0
				return nil
			}
		}
		if err := q.park(ctx, released); err != nil {
			return err
		}
	}
	return nil
}

// park waits for the inner queue or for a Release.
func (q *faultyQueue) park(ctx, released context.Context) error {
	if len(q.below) == 0 {
		select {
		case <-released.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	either, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(released, cancel)()
	if err := q.inner.Wait(either); err != nil && (ctx.Err() != nil || released.Err() == nil) {
		return err
	}
	return nil
}

// Close implements Queue. It releases what is stuck.
func (q *faultyQueue) Close() error {
	if q.closed {
		return nil
	}
	q.closed = true
	return q.inner.Close()
}
