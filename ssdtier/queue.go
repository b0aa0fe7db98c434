package ssdtier

import (
	"context"
	"fmt"
	"math"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/queue"
	"github.com/redykv/redykv/ssdtier/internal/uring"
)

// diskQueue is one goroutine's operations. Plain ones go to its ring, if it has one, and all
// others to the pool of the device, by core.
type diskQueue struct {
	d      *Device
	core   *queue.Core
	ops    []operation // by number in core
	small  int         // size of an operation's own buffer
	closed bool

	ring   *uring.Ring // nil if there is none
	reaped [64]uring.Completion
}

// operation is one read or write, from Read or Write until Poll.
type operation struct {
	req request
	tag uint64
	// Of a read that is not aligned: dst gets the bytes from skip on of the blocks read.
	// Those are in own, allocated when first needed, or in large.
	dst   []byte
	skip  int
	own   []byte
	large *buffer
}

const (
	smallBuffer = 4 << 10
	// maxTransfer bounds the length of an operation, so that rounding it up to blocks does
	// not overflow.
	maxTransfer = 1 << 30
)

// NewQueue implements device.Device. It does not wait for changes of the directory, nor for Sync: a
// session's first read is behind it.
func (d *Device) NewQueue(depth int) (device.Queue, error) {
	if depth < 1 || depth > queue.MaxDepth {
		return nil, fmt.Errorf("ssdtier: queue depth %d, want 1 to %d", depth, queue.MaxDepth)
	}
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	ring, err := d.newRing(depth)
	if err != nil {
		return nil, fmt.Errorf("ssdtier: %s: queue: %w", d.dir, device.MarkTransient(err))
	}
	q := &diskQueue{d: d, small: max(smallBuffer, 2*d.block), ring: ring, ops: make([]operation, depth)}
	for i := range q.ops {
		q.ops[i].req.number = uint32(i)
	}
	q.core = queue.NewCore(d.pool, depth, func(n uint32, closed bool) { q.ops[n].req.run(d, closed) })
	if ring != nil {
		q.core.WakeWith(ring.Wake)
	}
	return q, nil
}

// take returns a free operation.
func (q *diskQueue) take(tag uint64) (*operation, error) {
	if q.closed {
		return nil, device.ErrClosed
	}
	n, ok := q.core.Take()
	if !ok {
		return nil, device.ErrQueueFull
	}
	op := &q.ops[n]
	op.tag = tag
	op.req.err = nil
	return op, nil
}

// enqueue gives the operation's request to the ring, or to the pool.
func (q *diskQueue) enqueue(op *operation) {
	if !q.startOnRing(&op.req) {
		q.core.Enqueue(op.req.number)
	}
}

// refuse ends an operation that does not start.
func (q *diskQueue) refuse(op *operation, err error) {
	op.req.err = err
	q.core.End(op.req.number)
}

func (q *diskQueue) Read(dst []byte, addr int64, tag uint64) error {
	op, err := q.take(tag)
	if err != nil {
		return err
	}
	op.req.write, op.req.buf = false, dst
	if begin := q.d.Begin(); addr < begin {
		q.refuse(op, fmt.Errorf("%s: %d bytes at %d, below its begin %d: %w", q.d.dir, len(dst), addr, begin, device.ErrNotHeld))
		return nil
	}
	if err := q.check(dst, addr); err != nil {
		q.refuse(op, err)
		return nil
	}
	op.req.addr, op.req.need = addr, len(dst)
	if unit := q.d.unitOf(addr, len(dst)); len(dst) > 0 && !aligned(dst, addr, unit) {
		q.around(op, dst, addr, int64(unit))
	}
	q.enqueue(op)
	return nil
}

// around makes the operation's request one for the blocks, or sectors, around dst.
func (q *diskQueue) around(op *operation, dst []byte, addr, unit int64) {
	op.dst = dst
	op.req.addr = addr &^ (unit - 1)
	op.skip = int(addr - op.req.addr)
	op.req.need = op.skip + len(dst)
	n := int(alignUp(int64(op.req.need), unit))
	switch {
	case n > q.small:
		op.large = q.d.buffers.get(n, q.d.block)
		op.req.buf = op.large.bytes[:n]
	case op.own == nil:
		op.own = device.AlignedBuffer(q.small, q.d.block)
		fallthrough
	default:
		op.req.buf = op.own[:n]
	}
}

// unitOf is the unit of a read: a block, or a sector if the read has no whole block of sumUnit
// and need not be verified.
func (d *Device) unitOf(addr int64, n int) int {
	if d.opts.Verify == VerifyBlocks && alignUp(addr, sumUnit)+sumUnit > addr+int64(n) {
		return d.sector
	}
	return d.block
}

func (q *diskQueue) Write(src []byte, addr int64, tag uint64) error {
	op, err := q.take(tag)
	if err != nil {
		return err
	}
	op.req.write, op.req.buf, op.req.addr = true, src, addr
	err = q.check(src, addr)
	if err == nil && !aligned(src, addr, q.d.block) {
		err = fmt.Errorf("ssdtier: %s: write of %d bytes at %d is not aligned to %d", q.d.dir, len(src), addr, q.d.block)
	}
	if err != nil {
		q.refuse(op, err)
		return nil
	}
	q.enqueue(op)
	return nil
}

// check returns an error if an operation is out of range.
func (q *diskQueue) check(b []byte, addr int64) error {
	if addr < 0 || addr > math.MaxInt64-2*maxTransfer || len(b) > maxTransfer {
		return fmt.Errorf("ssdtier: %s: %d bytes at %d: out of range", q.d.dir, len(b), addr)
	}
	return nil
}

func (q *diskQueue) Submit() error {
	if q.closed {
		return device.ErrClosed
	}
	q.submitRing()
	q.core.Submit()
	return nil
}

// gather adds the operations that are over to core.Ready, unless it has some.
func (q *diskQueue) gather() {
	if len(q.core.Ready()) > 0 {
		return
	}
	if q.ring != nil {
		q.reapRing()
	}
	q.core.Gather()
}

// pollWork is the number of bytes after which Poll, which computes checksums, returns although
// more operations may be over: the caller starts others before the disk runs out of work.
const pollWork = 256 << 10

func (q *diskQueue) Poll(done []device.Completion) (n int) {
	q.gather()
	for work := 0; n < len(done) && work < pollWork && q.settled(); n++ {
		done[n] = q.finish(q.core.Ready()[0])
		work += done[n].N
		q.core.Next()
	}
	return n
}

// finish copies what was read to the caller's buffer, frees the operation, and returns its
// completion.
func (q *diskQueue) finish(number uint32) device.Completion {
	op := &q.ops[number]
	c := device.Completion{Tag: op.tag, N: len(op.req.buf), Err: op.req.err}
	if op.dst != nil {
		c.N = len(op.dst)
		if c.Err == nil {
			copy(op.dst, op.req.buf[op.skip:])
		}
	}
	if c.Err != nil {
		c.N = 0
	}
	if op.large != nil {
		q.d.buffers.put(op.large)
	}
	op.dst, op.large, op.req.buf, op.req.err = nil, nil, nil, nil
	q.core.Free(number)
	return c
}

// Wait implements device.Queue. Operations on the ring are submitted and waited for by one
// system call.
func (q *diskQueue) Wait(ctx context.Context) error {
	if q.closed {
		return device.ErrClosed
	}
	q.core.Submit()
	for q.core.Len() > 0 {
		if q.gather(); q.settled() {
			break
		}
		if !q.core.WantWake() {
			continue
		}
		if err := q.park(ctx); err != nil {
			return err
		}
	}
	q.submitRing()
	return nil
}

func (q *diskQueue) Close() error {
	if q.closed {
		return nil
	}
	if err := queue.Drain(q, q.core.Len); err != nil {
		return err
	}
	q.closed = true
	if q.ring == nil {
		return nil
	}
	if err := q.ring.Close(); err != nil {
		return fmt.Errorf("ssdtier: %s: queue: %w", q.d.dir, err)
	}
	return nil
}
