package blockcache

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/queue"
)

// cachedQueue is a queue of the device behind the cache.
type cachedQueue struct {
	c      *Cache
	inner  device.Queue
	ops    queue.Pending[operation]
	ready  []event // to be polled, from taken on
	taken  int
	late   []uint64 // operations for which the device's queue had no room
	closed bool

	scratch [16]device.Completion
}

// event is a completion that is kept for the next Poll.
type event struct {
	device.Completion
	number uint64 // of its operation
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

// NewQueue implements device.Device.
func (c *Cache) NewQueue(depth int) (device.Queue, error) {
	inner, err := c.Device.NewQueue(depth)
	if err != nil {
		return nil, err
	}
	return &cachedQueue{c: c, inner: inner, ops: queue.NewPending[operation](depth), ready: make([]event, 0, depth)}, nil
}

// take adds an operation.
func (q *cachedQueue) take(op operation) (uint64, error) {
	if q.closed {
		return 0, device.ErrClosed
	}
	n, ok := q.ops.Add(op)
	if !ok {
		return 0, device.ErrQueueFull
	}
	return n, nil
}

func (q *cachedQueue) Read(dst []byte, addr int64, tag uint64) error {
	round := q.c.round.Load() // first: blocks that are final now are of this round
	first, blocks, ok := q.c.span(len(dst), addr)
	n, err := q.take(operation{tag: tag, buf: dst, addr: addr, first: first, round: round})
	if err != nil {
		return err
	}
	switch s := q.ops.At(n); {
	case !ok:
	case q.c.get(dst, addr, first, blocks):
		q.c.hits.Add(1)
		q.ready = append(q.ready, event{device.Completion{Tag: tag, N: len(dst)}, n})
		return nil
	default:
		q.c.misses.Add(1)
		s.blocks = make([]byte, blocks*q.c.opts.Block)
	}
	return q.start(n)
}

func (q *cachedQueue) Write(src []byte, addr int64, tag uint64) error {
	n, err := q.take(operation{tag: tag, buf: src, addr: addr, write: true})
	if err != nil {
		return err
	}
	q.c.begin(addr)
	if err := q.start(n); err != nil {
		q.c.end(addr) // it never began
		return err
	}
	return nil
}

// start gives a new operation to the device's queue, or removes it.
func (q *cachedQueue) start(n uint64) error {
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
	for ; n < len(done) && q.taken < len(q.ready); n++ {
		e := &q.ready[q.taken]
		done[n] = e.Completion
		q.ended(e.Completion, e.number)
		q.taken++
	}
	if q.taken == len(q.ready) {
		q.ready, q.taken = q.ready[:0], 0
	}
	if n == len(done) {
		return n
	}
	again := len(q.late) > 0
	q.handLate()
	for _, c := range done[n : n+q.inner.Poll(done[n:])] {
		number := c.Tag
		if c, over := q.settled(c); over {
			done[n] = c
			q.ended(c, number)
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

// ended removes an operation that a completion is the last event of.
func (q *cachedQueue) ended(c device.Completion, number uint64) {
	if c.Event != device.Committed && q.ops.Has(number) {
		q.ops.Remove(number)
	}
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
		if c.Err == nil {
			q.c.end(s.addr)
		}
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
			err = fmt.Errorf("%d bytes at %d: %w", len(s.buf), s.addr, err)
			q.ready = append(q.ready, event{device.Completion{Tag: s.tag, Err: err}, n})
		}
	}
}

func (q *cachedQueue) Wait(ctx context.Context) error {
	if q.closed {
		return device.ErrClosed
	}
	for q.ops.Len() > 0 && q.taken == len(q.ready) {
		if q.gather(); q.taken < len(q.ready) {
			break
		}
		if err := q.inner.Wait(ctx); err != nil {
			return err
		}
	}
	return q.inner.Submit()
}

// gather polls the device and keeps the events.
func (q *cachedQueue) gather() {
	q.handLate()
	for _, c := range q.scratch[:q.inner.Poll(q.scratch[:])] {
		number := c.Tag
		if c, over := q.settled(c); over {
			q.ready = append(q.ready, event{c, number})
		}
	}
	_ = q.inner.Submit() // if it fails, Wait returns the error
}

func (q *cachedQueue) Close() error {
	if q.closed {
		return nil
	}
	if err := queue.Drain(q, q.ops.Len); err != nil {
		return err
	}
	q.closed = true
	return q.inner.Close()
}
