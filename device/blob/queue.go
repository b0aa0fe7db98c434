package blob

import (
	"context"
	"errors"
	"fmt"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/internal/progress"
	"github.com/redykv/redykv/internal/queue"
)

// bucketQueue is a queue of the local device, and one of reads from the bucket.
type bucketQueue struct {
	d       *Device
	queues  [2]device.Queue
	pending [2]int // operations on each
	ops     queue.Pending[operation]
	// ready are events that Wait has polled, from taken on.
	ready   []device.Completion
	taken   int
	scratch [16]device.Completion
	closed  bool
}

// Indexes in queues.
const (
	local = iota
	remote
)

// operation is one read or write, from Read or Write until its last event.
type operation struct {
	tag   uint64
	buf   []byte
	addr  int64
	write bool
	on    int // index of its queue
}

// NewQueue implements device.Device.
func (d *Device) NewQueue(depth int) (device.Queue, error) {
	own, err := d.local.NewQueue(depth)
	if err != nil {
		return nil, err
	}
	bucket, err := d.reads.NewQueue(depth)
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return &bucketQueue{d: d, queues: [2]device.Queue{own, bucket}, ops: queue.NewPending[operation](depth)}, nil
}

// take adds an operation.
func (q *bucketQueue) take(op operation) (uint64, error) {
	if q.closed {
		return 0, device.ErrClosed
	}
	n, ok := q.ops.Add(op)
	if !ok {
		return 0, device.ErrQueueFull
	}
	q.pending[op.on]++
	return n, nil
}

func (q *bucketQueue) Read(dst []byte, addr int64, tag uint64) error {
	on := local
	if addr < q.d.local.Begin() {
		on = remote
	}
	n, err := q.take(operation{tag: tag, buf: dst, addr: addr, on: on})
	if err != nil {
		return err
	}
	if err = q.queues[on].Read(dst, addr, n); err != nil {
		q.ended(n)
	}
	return err
}

func (q *bucketQueue) Write(src []byte, addr int64, tag uint64) error {
	n, err := q.take(operation{tag: tag, buf: src, addr: addr, write: true})
	if err != nil {
		return err
	}
	s := q.ops.At(n).span()
	q.d.beginWrite(s)
	if err = q.queues[local].Write(src, addr, n); err != nil {
		q.d.endWrite(s, false)
		q.ended(n)
	}
	return err
}

func (s *operation) span() progress.Span {
	return progress.Span{From: s.addr, To: s.addr + int64(len(s.buf))}
}

// ended removes an operation.
func (q *bucketQueue) ended(n uint64) {
	q.pending[q.ops.At(n).on]--
	q.ops.Remove(n)
}

func (q *bucketQueue) Submit() error {
	if q.closed {
		return device.ErrClosed
	}
	return errors.Join(q.queues[local].Submit(), q.queues[remote].Submit())
}

func (q *bucketQueue) Poll(done []device.Completion) (n int) {
	n = copy(done, q.ready[q.taken:])
	if q.taken += n; q.taken == len(q.ready) {
		q.ready, q.taken = q.ready[:0], 0
	}
	return n + q.poll(done[n:])
}

// poll polls both queues for the events that Wait has not polled.
func (q *bucketQueue) poll(done []device.Completion) (n int) {
	again := false
	if q.pending[local] > 0 && len(done) > 0 {
		for _, c := range done[:q.queues[local].Poll(done)] {
			if c, over := q.settleLocal(c); over {
				done[n] = c
				n++
			} else {
				again = true
			}
		}
	}
	if again {
		// If Submit fails, the next Submit fails too and returns the error.
		_ = q.queues[remote].Submit()
	}
	if q.pending[remote] > 0 && n < len(done) {
		k := q.queues[remote].Poll(done[n:])
		for i := range done[n : n+k] {
			c := &done[n+i]
			number := c.Tag
			c.Tag = q.ops.At(number).tag
			q.ended(number)
		}
		n += k
	}
	return n
}

// settleLocal handles the end of an operation, or of a stage of it, on the local device. A
// failed read continues in the bucket if the bucket has its bytes.
func (q *bucketQueue) settleLocal(c device.Completion) (_ device.Completion, over bool) {
	n := c.Tag
	s := q.ops.At(n)
	c.Tag, c.Tier = s.tag, 0
	switch {
	case s.write && c.Event == device.Committed:
		return c, true
	case s.write:
		q.d.endWrite(s.span(), c.Err == nil)
	case c.Err != nil && q.d.inBucket(s.addr):
		if err := q.queues[remote].Read(s.buf, s.addr, n); err != nil {
			c.Err = fmt.Errorf("%w; reading it from the bucket failed: %w", c.Err, err)
			break
		}
		q.pending[local]--
		q.pending[remote]++
		s.on = remote
		return device.Completion{}, false
	}
	q.ended(n)
	return c, true
}

// inBucket reports whether the bucket has the byte at an address.
func (d *Device) inBucket(addr int64) bool {
	c := d.catalog.Load()
	if c == nil || addr < d.begin.Load() {
		return false
	}
	_, ok := c.find(addr)
	return ok
}

func (q *bucketQueue) Wait(ctx context.Context) error {
	if q.closed {
		return device.ErrClosed
	}
	for slices := (queue.Slices{}); q.ops.Len() > 0; {
		if q.taken == len(q.ready) {
			q.ready, q.taken = append(q.ready[:0], q.scratch[:q.poll(q.scratch[:])]...), 0
		}
		if q.taken < len(q.ready) {
			break
		}
		if err := q.waitOnce(ctx, &slices); err != nil {
			return err
		}
	}
	return q.Submit()
}

// waitOnce waits for a completion on one of the queues. If both have operations pending, it
// waits for one slice of time on each.
func (q *bucketQueue) waitOnce(ctx context.Context, slices *queue.Slices) error {
	switch {
	case q.pending[remote] == 0:
		return q.queues[local].Wait(ctx)
	case q.pending[local] == 0:
		return q.queues[remote].Wait(ctx)
	}
	expired, err := slices.Wait(ctx, q.queues[local])
	if expired {
		_, err = slices.Wait(ctx, q.queues[remote])
	}
	return err
}

func (q *bucketQueue) Close() error {
	if q.closed {
		return nil
	}
	if err := queue.Drain(q, q.ops.Len); err != nil {
		return err
	}
	q.closed = true
	return errors.Join(q.queues[local].Close(), q.queues[remote].Close())
}
