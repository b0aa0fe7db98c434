package blockcache

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/internal/progress"
	"github.com/redykv/redykv/internal/queue"
)

// cachedQueue is a queue of the device behind the cache.
type cachedQueue struct {
	c      *Cache
	inner  device.Queue
	ops    queue.Pending[operation]
	depth  int
	ready  []device.Completion // to be polled, from taken on
	taken  int
	over   int      // operations whose last event is in ready: not in ops, but still pending
	late   []uint64 // operations for which the device's queue had no room
	closed bool

	scratch [16]device.Completion
}

// operation is one read or write, from Read or Write until its last event.
type operation struct {
	tag   uint64
	buf   []byte
	addr  int64
	write bool

	// Of a read in whole blocks: the buffer, the number of the first, and the round.
	blocks []byte
	first  int64
	round  uint64
}

func (o *operation) span() progress.Span {
	return progress.Span{From: o.addr, To: o.addr + int64(len(o.buf))}
}

// NewQueue implements device.Device.
func (c *Cache) NewQueue(depth int) (device.Queue, error) {
	inner, err := c.Device.NewQueue(depth)
	if err != nil {
		return nil, err
	}
	return &cachedQueue{
		c: c, inner: inner, depth: depth,
		ops: queue.NewPending[operation](depth), ready: make([]device.Completion, 0, depth),
	}, nil
}

// pending is the number of pending operations.
func (q *cachedQueue) pending() int { return q.ops.Len() + q.over }

// admit returns an error if no operation can be added.
func (q *cachedQueue) admit() error {
	if q.closed {
		return device.ErrClosed
	}
	if q.pending() == q.depth {
		return device.ErrQueueFull
	}
	return nil
}

func (q *cachedQueue) Read(dst []byte, addr int64, tag uint64) error {
	round := q.c.round.Load() // first: blocks that are final now are of this round
	first, blocks, ok := q.c.span(len(dst), addr)
	if err := q.admit(); err != nil {
		return err
	}
	op := operation{tag: tag, buf: dst, addr: addr, first: first, round: round}
	switch {
	case !ok:
	case q.c.get(dst, addr, first, blocks):
		q.c.hits.Add(1)
		q.keep(device.Completion{Tag: tag, N: len(dst)})
		return nil
	default:
		q.c.misses.Add(1)
		op.blocks = make([]byte, blocks*q.c.opts.Block)
	}
	return q.start(op)
}

func (q *cachedQueue) Write(src []byte, addr int64, tag uint64) error {
	if err := q.admit(); err != nil {
		return err
	}
	op := operation{tag: tag, buf: src, addr: addr, write: true}
	q.c.begin(op.span())
	err := q.start(op)
	if err != nil {
		q.c.end(op.span(), false)
	}
	return err
}

// start adds an operation and gives it to the device's queue.
func (q *cachedQueue) start(op operation) error {
	n, _ := q.ops.Add(op) // there is room: see admit
	err := q.hand(n)
	if err != nil {
		q.ops.Remove(n)
	}
	return err
}

// hand gives an operation to the device's queue.
func (q *cachedQueue) hand(n uint64) error {
	switch s := q.ops.At(n); {
	case s.write:
		return q.inner.Write(s.buf, s.addr, n)
	case s.blocks != nil:
		return q.inner.Read(s.blocks, s.first<<q.c.shift, n)
	default:
		return q.inner.Read(s.buf, s.addr, n)
	}
}

func (q *cachedQueue) Submit() error { return q.inner.Submit() }

func (q *cachedQueue) Poll(done []device.Completion) (n int) {
	n = copy(done, q.ready[q.taken:])
	if q.taken += n; q.taken == len(q.ready) {
		q.ready, q.taken = q.ready[:0], 0
	}
	for _, c := range done[:n] {
		if c.Event != device.Committed {
			q.over--
		}
	}
	return n + q.poll(done[n:])
}

// poll polls the device.
func (q *cachedQueue) poll(done []device.Completion) (n int) {
	if len(done) == 0 {
		return 0
	}
	again := len(q.late) > 0
	q.handLate()
	for _, c := range done[:q.inner.Poll(done)] {
		if c, over := q.settled(c); over {
			done[n] = c
			n++
		} else {
			again = true
		}
	}
	if again {
		// If Submit fails, the next Submit fails too and returns the error.
		_ = q.inner.Submit()
	}
	return n
}

// keep stores an event for the next Poll.
func (q *cachedQueue) keep(c device.Completion) {
	if c.Event != device.Committed {
		q.over++
	}
	q.ready = append(q.ready, c)
}

// settled handles the end of an operation on the device. The operation is not over if its
// blocks could not be read: the damage may be outside of its bytes, which are then read
// alone.
func (q *cachedQueue) settled(c device.Completion) (_ device.Completion, over bool) {
	n := c.Tag
	if !q.ops.Has(n) {
		return device.Completion{Tag: n, Err: errLost}, true
	}
	s := q.ops.At(n)
	c.Tag = s.tag
	switch {
	case s.write && c.Event == device.Committed:
		return c, true
	case s.write:
		q.c.end(s.span(), c.Err == nil)
	case s.blocks != nil && c.Err == nil && c.N == len(s.blocks):
		copy(s.buf, s.blocks[s.addr-s.first<<q.c.shift:])
		c.N = len(s.buf)
		q.c.put(s.blocks, s.first, s.round)
	case s.blocks != nil:
		s.blocks = nil
		q.late = append(q.late, n)
		q.handLate()
		return device.Completion{}, false
	}
	q.ops.Remove(n)
	return c, true
}

// handLate gives the device's queue the operations that wait for room.
func (q *cachedQueue) handLate() {
	for len(q.late) > 0 {
		n := q.late[0]
		err := q.hand(n)
		if errors.Is(err, device.ErrQueueFull) {
			return
		}
		q.late = slices.Delete(q.late, 0, 1)
		if err != nil {
			s := q.ops.At(n)
			q.keep(device.Completion{Tag: s.tag, Err: fmt.Errorf("%d bytes at %d: %w", len(s.buf), s.addr, err)})
			q.ops.Remove(n)
		}
	}
}

func (q *cachedQueue) Wait(ctx context.Context) error {
	if q.closed {
		return device.ErrClosed
	}
	if err := q.inner.Submit(); err != nil {
		return err
	}
	for q.pending() > 0 && q.taken == len(q.ready) {
		for _, c := range q.scratch[:q.poll(q.scratch[:])] {
			q.keep(c)
		}
		if q.taken < len(q.ready) {
			break
		}
		if err := q.inner.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (q *cachedQueue) Close() error {
	if q.closed {
		return nil
	}
	if err := queue.Drain(q, q.pending); err != nil {
		return err
	}
	q.closed = true
	return q.inner.Close()
}
