package redytier

import (
	"context"
	"fmt"

	"github.com/redykv/redykv/device"
)

// deviceQueue is a session that speaks of log addresses. Its tags to the session
// are slots of ops.
type deviceQueue struct {
	d    *Device
	s    *Session
	ops  []deviceOp
	free []uint32
}

// deviceOp is one operation under way. A write is in segments first to last
// until it ends; none if first > last.
type deviceOp struct {
	tag         uint64
	addr        int64
	n           int
	write       bool
	first, last int64
}

func newDeviceQueue(d *Device, s *Session, depth int) *deviceQueue {
	q := &deviceQueue{d: d, s: s, ops: make([]deviceOp, depth), free: make([]uint32, depth)}
	for i := range q.free {
		q.free[i] = uint32(depth - 1 - i)
	}
	return q
}

// Read implements device.Queue.
//
// A reader needs no protection against the writer that reuses its bytes' place,
// only to find out about it: the writer moves Begin past the old bytes before it
// enqueues the new ones. A read that saw any of the new bytes therefore completed
// after Begin had moved, and Poll, which looks at Begin after the completion,
// answers ErrNotHeld (A52).
func (q *deviceQueue) Read(dst []byte, addr int64, tag uint64) error {
	if addr < q.d.begin.Load() || addr > q.d.end.Load()-int64(len(dst)) {
		return q.notHeld(addr)
	}
	slot, err := q.slot()
	if err != nil {
		return err
	}
	if err := q.s.Read(dst, addr%q.d.segments.size, uint64(slot)); err != nil {
		return err
	}
	q.ops[slot] = deviceOp{tag: tag, addr: addr, n: len(dst)}
	q.free = q.free[:len(q.free)-1]
	return nil
}

// Write implements device.Queue.
func (q *deviceQueue) Write(src []byte, addr int64, tag uint64) error {
	if addr < 0 || addr > maxLog-int64(len(src)) {
		return fmt.Errorf("%w: %d bytes at %d of a log", ErrOutOfRange, len(src), addr)
	}
	slot, err := q.slot()
	if err != nil {
		return err
	}
	// A write of the part that is still held; of nothing where that is empty.
	from, first, last := q.reserve(addr, addr+int64(len(src)))
	held := src[from-addr:]
	if err := q.s.Write(held, from%q.d.segments.size, uint64(slot)); err != nil {
		q.d.segments.leave(first, last)
		return err
	}
	q.ops[slot] = deviceOp{tag: tag, addr: addr, n: len(src), write: true, first: first, last: last}
	q.free = q.free[:len(q.free)-1]
	return nil
}

// reserve makes room for the log's bytes [from, to) and enters their segments.
// It returns where the part begins that the device will hold.
func (q *deviceQueue) reserve(from, to int64) (held, first, last int64) {
	g := q.d.segments
	if from == to {
		return from, 0, -1
	}
	last = g.of(to - 1)
	raise(&q.d.begin, g.start(last+1-int64(len(g.places))))
	for {
		if from = min(max(from, q.d.begin.Load()), to); from == to {
			return to, 0, -1
		}
		first = g.of(from)
		switch g.enter(first, last) {
		case entered:
			return from, first, last
		case occupied:
			raise(&q.d.begin, to)
		case overtaken: // by a writer that has moved begin further already
		}
	}
}

// slot is the one that the next operation gets.
func (q *deviceQueue) slot() (uint32, error) {
	if len(q.free) == 0 {
		return 0, device.ErrQueueFull
	}
	return q.free[len(q.free)-1], nil
}

func (q *deviceQueue) notHeld(addr int64) error {
	return fmt.Errorf("redytier: %w: %d is not in [%d, %d)", device.ErrNotHeld, addr, q.d.begin.Load(), q.d.end.Load())
}

// Submit implements device.Queue.
func (q *deviceQueue) Submit() error { return q.s.Submit() }

// Poll implements device.Queue.
func (q *deviceQueue) Poll(done []device.Completion) int {
	n := q.s.Poll(done)
	for i := range done[:n] {
		slot := uint32(done[i].Tag)
		o := &q.ops[slot]
		done[i].Tag = o.tag
		if o.write {
			q.written(o, &done[i])
		} else if done[i].Err == nil && o.addr < q.d.begin.Load() {
			done[i].N, done[i].Err = 0, q.notHeld(o.addr)
		}
		q.free = append(q.free, slot)
	}
	return n
}

// written ends a write. What it failed to store is not held, nor is what lies
// before it.
func (q *deviceQueue) written(o *deviceOp, c *device.Completion) {
	end := o.addr + int64(o.n)
	if c.Err == nil {
		c.N = o.n
	} else {
		raise(&q.d.begin, end)
	}
	raise(&q.d.end, end)
	q.d.segments.leave(o.first, o.last)
}

// Wait implements device.Queue.
func (q *deviceQueue) Wait(ctx context.Context) error { return q.s.Wait(ctx) }

// Close implements device.Queue.
func (q *deviceQueue) Close() error {
	var done [pollBatch]device.Completion
	return q.s.close(func() { q.Poll(done[:]) })
}
