package ssdtier

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/slots"
	"github.com/redykv/redykv/internal/workpool"
	"github.com/redykv/redykv/ssdtier/internal/uring"
)

// queue is one goroutine's operations. Plain ones go to its ring, if it has one, and
// all others to the pool of the device, whose goroutines give the slot's number back
// through done. Only that needs a lock.
type queue struct {
	d      *Device
	slots  []slot
	free   []uint32
	small  int // size of a slot's own buffer
	closed bool

	enqueued workpool.List // for the pool, and not submitted
	outside  int           // at the pool, or in done
	ready    []uint32      // slots whose operation is over, if it is settled, from taken on
	taken    int

	ring   *uring.Ring // nil if there is none
	reaped [64]uring.Completion

	mu      sync.Mutex
	done    []uint32      // slots that the pool is through with
	waiting bool          // the owner is about to park
	wake    chan struct{} // one token for a waiting owner without a ring
}

// slot is one operation, from Read or Write until Poll.
type slot struct {
	req request
	tag uint64
	// Of a read that was not aligned: dst gets the bytes from skip on of the
	// blocks read. Those are in own, made when first needed, or in large.
	dst   []byte
	skip  int
	own   []byte
	large *buffer
}

const (
	smallBuffer = 4 << 10
	maxDepth    = 1 << 16
	// maxTransfer bounds one operation, so that its length rounded up to blocks
	// is sure to be an int.
	maxTransfer = 1 << 30
)

// NewQueue implements device.Device.
func (d *Device) NewQueue(depth int) (device.Queue, error) {
	if depth < 1 || depth > maxDepth {
		return nil, fmt.Errorf("ssdtier: queue depth %d, want 1 to %d", depth, maxDepth)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, device.ErrClosed
	}
	ring, err := d.newRing(depth)
	if err != nil {
		return nil, fmt.Errorf("ssdtier: %s: queue: %w", d.dir, device.MarkTransient(err))
	}
	q := &queue{
		d: d, small: max(smallBuffer, 2*d.block), ring: ring,
		slots: make([]slot, depth), free: make([]uint32, depth), wake: make(chan struct{}, 1),
		ready: make([]uint32, 0, depth), done: make([]uint32, 0, depth),
	}
	for i := range q.slots {
		r := &q.slots[i].req
		r.q, r.slot, r.job.Run = q, uint32(i), r.run
		q.free[i] = uint32(depth - 1 - i)
	}
	return q, nil
}

// take returns a free slot.
func (q *queue) take(tag uint64) (*slot, error) {
	if q.closed {
		return nil, device.ErrClosed
	}
	if len(q.free) == 0 {
		return nil, device.ErrQueueFull
	}
	s := &q.slots[q.free[len(q.free)-1]]
	q.free = q.free[:len(q.free)-1]
	s.tag = tag
	s.req.err = nil
	return s, nil
}

// enqueue gives the slot's request to the ring, or to the list that Submit hands over.
func (q *queue) enqueue(s *slot) {
	if q.startOnRing(&s.req) {
		return
	}
	q.enqueued.Push(&s.req.job)
}

// refuse ends an operation that never begins.
func (q *queue) refuse(s *slot, err error) {
	s.req.err = err
	q.ready = append(q.ready, s.req.slot)
}

// Read implements device.Queue.
func (q *queue) Read(dst []byte, addr int64, tag uint64) error {
	s, err := q.take(tag)
	if err != nil {
		return err
	}
	s.req.write, s.req.buf = false, dst
	if begin := q.d.Begin(); addr < begin {
		q.refuse(s, fmt.Errorf("%s: %d bytes at %d, below its begin %d: %w", q.d.dir, len(dst), addr, begin, device.ErrNotHeld))
		return nil
	}
	if err := q.check(dst, addr); err != nil {
		q.refuse(s, err)
		return nil
	}
	s.req.addr, s.req.need = addr, len(dst)
	if unit := q.d.unitOf(addr, len(dst)); len(dst) > 0 && !aligned(dst, addr, unit) {
		q.around(s, dst, addr, int64(unit))
	}
	q.enqueue(s)
	return nil
}

// around makes the slot's request one for the blocks, or sectors, around dst.
func (q *queue) around(s *slot, dst []byte, addr, unit int64) {
	s.dst = dst
	s.req.addr = addr &^ (unit - 1)
	s.skip = int(addr - s.req.addr)
	s.req.need = s.skip + len(dst)
	n := int(alignUp(int64(s.req.need), unit))
	switch {
	case n > q.small:
		s.large = q.d.buffers.get(n, q.d.block)
		s.req.buf = s.large.bytes[:n]
	case s.own == nil:
		s.own = device.AlignedBuffer(q.small, q.d.block)
		fallthrough
	default:
		s.req.buf = s.own[:n]
	}
}

// unitOf is what a read takes multiples of: blocks, or sectors if it has no whole block
// of sumUnit in it and need not be verified.
func (d *Device) unitOf(addr int64, n int) int {
	if d.opts.Verify == VerifyBlocks && alignUp(addr, sumUnit)+sumUnit > addr+int64(n) {
		return d.sector
	}
	return d.block
}

// Write implements device.Queue.
func (q *queue) Write(src []byte, addr int64, tag uint64) error {
	s, err := q.take(tag)
	if err != nil {
		return err
	}
	s.req.write, s.req.buf, s.req.addr = true, src, addr
	err = q.check(src, addr)
	if err == nil && !aligned(src, addr, q.d.block) {
		err = fmt.Errorf("ssdtier: %s: write of %d bytes at %d is not aligned to %d", q.d.dir, len(src), addr, q.d.block)
	}
	if err != nil {
		q.refuse(s, err)
		return nil
	}
	q.enqueue(s)
	return nil
}

// check refuses operations that no log can have.
func (q *queue) check(b []byte, addr int64) error {
	if addr < 0 || addr > math.MaxInt64-2*maxTransfer || len(b) > maxTransfer {
		return fmt.Errorf("ssdtier: %s: %d bytes at %d: out of range", q.d.dir, len(b), addr)
	}
	return nil
}

// Submit implements device.Queue.
func (q *queue) Submit() error {
	if q.closed {
		return device.ErrClosed
	}
	q.submitRing()
	q.submitRest()
	return nil
}

// submitRest starts what is not on the ring.
func (q *queue) submitRest() {
	if n := q.enqueued.Len(); n > 0 {
		q.outside += n
		q.d.pool.Submit(&q.enqueued)
	}
}

// handOver gives one request to the pool.
func (q *queue) handOver(r *request) {
	var one workpool.List
	one.Push(&r.job)
	q.outside++
	q.d.pool.Submit(&one)
}

// complete hands a request's slot back to the owner, and wakes it if it waits.
// It runs on the pool's goroutines.
func (q *queue) complete(r *request) {
	q.mu.Lock()
	q.done = append(q.done, r.slot)
	waiting, ring := q.waiting, q.ring
	q.waiting = false
	q.mu.Unlock()
	switch {
	case !waiting:
	case ring != nil:
		ring.Wake()
	default:
		select {
		case q.wake <- struct{}{}:
		default: // a token is there already
		}
	}
}

// gather makes ready what is over, unless something is.
func (q *queue) gather() {
	if q.taken < len(q.ready) {
		return
	}
	q.ready, q.taken = q.ready[:0], 0
	if q.ring != nil {
		q.reapRing()
	}
	if q.outside > 0 {
		q.mu.Lock()
		q.ready = append(q.ready, q.done...)
		q.outside -= len(q.done)
		q.done = q.done[:0]
		q.mu.Unlock()
	}
}

// pollWork is after how many bytes Poll returns, though more operations may be over.
// Checksums are computed as they are polled: of a large burst, the disk would have run out
// of work before the caller can start what follows. Smaller ones ring more doorbells.
const pollWork = 256 << 10

// Poll implements device.Queue.
func (q *queue) Poll(done []device.Completion) (n int) {
	q.gather()
	for work := 0; n < len(done) && work < pollWork && q.settled(); n++ {
		done[n] = q.finish(q.ready[q.taken])
		work += done[n].N
		q.taken++
	}
	return n
}

// finish copies what was read to where it was wanted, frees the slot, and
// returns the operation's completion.
func (q *queue) finish(number uint32) device.Completion {
	s := &q.slots[number]
	c := device.Completion{Tag: s.tag, N: len(s.req.buf), Err: s.req.err}
	if s.dst != nil {
		c.N = len(s.dst)
		if c.Err == nil {
			copy(s.dst, s.req.buf[s.skip:])
		}
	}
	if c.Err != nil {
		c.N = 0
	}
	if s.large != nil {
		q.d.buffers.put(s.large)
	}
	s.dst, s.large, s.req.buf, s.req.err = nil, nil, nil, nil
	q.free = append(q.free, number)
	return c
}

// Wait implements device.Queue. Where the operations are on the ring, it submits and
// waits by one call of the kernel.
func (q *queue) Wait(ctx context.Context) error {
	if q.closed {
		return device.ErrClosed
	}
	q.submitRest()
	for len(q.free) < len(q.slots) {
		if q.gather(); q.settled() {
			break
		}
		if q.outside > 0 && !q.wantWake() {
			continue
		}
		if err := q.park(ctx); err != nil {
			return err
		}
	}
	q.submitRing()
	return nil
}

// wantWake asks for a wake by the next request that the pool completes; it returns
// false if there is one already.
func (q *queue) wantWake() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = len(q.done) == 0
	return q.waiting
}

// park sleeps until there may be something to gather.
func (q *queue) park(ctx context.Context) error {
	if q.ring != nil {
		return q.parkOnRing(ctx)
	}
	select {
	case <-q.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close implements device.Queue.
func (q *queue) Close() error {
	if q.closed {
		return nil
	}
	if err := slots.Drain(q, func() int { return len(q.slots) - len(q.free) }); err != nil {
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
