package redytier

import (
	"context"
	"errors"
	"fmt"

	"github.com/redykv/redykv/device"
)

// deviceQueue is a session with log addresses. Its tags for the session are indexes of ops.
type deviceQueue struct {
	d    *Device
	s    session
	ops  []deviceOp
	free []uint32
	lap  int64 // log address where the last used lap of the ring begins
}

// session is the part of Session that a deviceQueue uses.
type session interface {
	device.Queue
	// close is Close with poll to take completions.
	close(poll func()) error
}

// deviceOp is one pending operation. A write has entered segments first to last; none if
// first > last.
type deviceOp struct {
	tag         uint64
	addr        int64
	n           int
	kind        opKind
	held        int64 // of a write: begin of the stored part
	first, last int64
	added       uint64 // holes.added when it began
}

// span is the log addresses that the operation reads or stores.
func (o *deviceOp) span() span {
	from := o.addr
	if o.kind != opRead {
		from = o.held
	}
	return span{from, o.addr + int64(o.n)}
}

type opKind uint8

const (
	opRead    opKind = iota
	opWrite          // where there was no hole
	opFill           // a write into a hole
	opRefill         // a hole's bytes from another tier
	opRefused        // a write that is not stored and becomes a hole
)

// Errors of reads of holes and of writes that are not stored.
var (
	errHole      = fmt.Errorf("redytier: %w: lost, or not filled yet", device.ErrNotHeld)
	errNotStored = fmt.Errorf("redytier: %w: not stored", device.ErrNotHeld)
)

func newDeviceQueue(d *Device, s session, depth int) *deviceQueue {
	q := &deviceQueue{d: d, s: s, ops: make([]deviceOp, depth), free: make([]uint32, depth)}
	for i := range q.free {
		q.free[i] = uint32(depth - 1 - i)
	}
	return q
}

// Read implements device.Queue.
//
// A read may race with a writer that reuses the place of its bytes; it is detected
// afterwards. The writer moves Begin past the old bytes before it enqueues the new ones. A
// read that saw new bytes therefore completed after Begin had moved, and Poll, which checks
// Begin after the completion, answers ErrNotHeld (A52). The same holds for lost memory: a
// hole appears before the new memory can be read.
func (q *deviceQueue) Read(dst []byte, addr int64, tag uint64) error {
	if addr < q.d.begin.Load() || addr > q.d.end.Load()-int64(len(dst)) {
		return q.notHeld(addr)
	}
	added, hole := q.d.holes.look(span{addr, addr + int64(len(dst))})
	if hole {
		if p := q.d.pieces; p != nil {
			p.ask(span{addr, addr + int64(len(dst))})
		}
		return errHole
	}
	i, err := q.freeOp()
	if err != nil {
		return err
	}
	if err := q.s.Read(dst, q.place(addr), uint64(i)); err != nil {
		return err
	}
	o := &q.ops[i]
	o.tag, o.addr, o.n, o.kind, o.added = tag, addr, len(dst), opRead, added
	q.free = q.free[:len(q.free)-1]
	return nil
}

// Write implements device.Queue. If Begin passes a part of the write, only the rest is
// stored.
func (q *deviceQueue) Write(src []byte, addr int64, tag uint64) error {
	if addr < 0 || addr > maxLog-int64(len(src)) {
		return fmt.Errorf("%w: %d bytes at %d of a log", ErrOutOfRange, len(src), addr)
	}
	i, err := q.freeOp()
	if err != nil {
		return err
	}
	if p := q.d.pieces; p != nil {
		if err := p.admit(addr); err != nil {
			return err
		}
	}
	o := deviceOp{tag: tag, addr: addr, n: len(src), kind: opWrite}
	q.reserve(&o)
	stored := o.span()
	if stored.from < stored.to {
		var hole bool
		if o.added, hole = q.d.holes.look(stored); o.kind == opWrite && (hole || q.d.holes.isLate.Load()) {
			o.added, o.kind = q.d.rewrite(stored)
		}
	}
	if o.kind == opRefused {
		src = nil
	} else {
		src = src[stored.from-addr:]
	}
	return q.write(i, src, o)
}

// write enqueues o, which stores src, with an index of ops.
func (q *deviceQueue) write(i uint32, src []byte, o deviceOp) error {
	if err := q.s.Write(src, q.place(o.held), uint64(i)); err != nil {
		return q.notStored(&o, err)
	}
	if p := q.d.pieces; p != nil {
		p.record(src, &o)
	}
	q.ops[i] = o
	q.free = q.free[:len(q.free)-1]
	return nil
}

// place returns a log address's place in the ring: its remainder by the ring's size, without
// a division while the lap is the same.
func (q *deviceQueue) place(addr int64) int64 {
	at := addr - q.lap
	if size := q.d.segments.size; uint64(at) >= uint64(size) {
		at = addr % size
		q.lap = addr - at
	}
	return at
}

// reserve makes room for a write and enters the segments of the part that the device will
// hold, or refuses the write.
func (q *deviceQueue) reserve(o *deviceOp) {
	g, end := q.d.segments, o.addr+int64(o.n)
	o.held, o.first, o.last = o.addr, 0, -1
	if o.n == 0 {
		return
	}
	q.d.reach(end)
	last := g.of(end - 1)
	for {
		if o.held = min(max(o.held, q.d.begin.Load()), end); o.held == end {
			return
		}
		first := g.of(o.held)
		switch g.enter(first, last) {
		case entered:
			o.first, o.last = first, last
			return
		case occupied:
			q.d.addHole(span{o.held, end})
			o.kind = opRefused
			return
		case overtaken: // by a writer that has moved begin
		}
	}
}

// freeOp returns the index of the next operation.
func (q *deviceQueue) freeOp() (uint32, error) {
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
		op := uint32(done[i].Tag)
		o := &q.ops[op]
		done[i].Tag = o.tag
		switch {
		case o.kind != opRead:
			q.written(o, &done[i])
		case done[i].Err != nil:
			if errors.Is(done[i].Err, ErrRegionUnavailable) {
				done[i].Err = q.notHeldError(done[i].Err)
			}
		case o.addr < q.d.begin.Load():
			done[i].N, done[i].Err = 0, q.notHeld(o.addr)
		case q.d.holes.since(o.added, o.span()):
			done[i].N, done[i].Err = 0, errHole
		}
		q.free = append(q.free, op)
	}
	return n
}

// written ends a write. Bytes that it failed to store, or that were lost meanwhile, are a
// hole.
func (q *deviceQueue) written(o *deviceOp, c *device.Completion) {
	if c.Err != nil {
		c.N, c.Err = 0, q.notStored(o, c.Err)
		return
	}
	x, stored := o.span(), false
	switch o.kind {
	case opWrite:
		stored = !q.d.holes.since(o.added, x)
	case opFill, opRefill:
		stored = q.d.holes.filled(x, o.added, true)
	}
	if c.N = o.n; !stored {
		c.N, c.Err = 0, errNotStored
	}
	raise(&q.d.end, x.to)
	q.d.segments.leave(o.first, o.last)
}

// notStored ends a write that failed in the session, and returns its error. If the session
// is full, the write has not begun.
func (q *deviceQueue) notStored(o *deviceOp, err error) error {
	x, begun := o.span(), !errors.Is(err, device.ErrQueueFull)
	if begun {
		q.d.addLate(x) // before another write can take its place
	}
	if o.kind == opFill || o.kind == opRefill {
		q.d.holes.filled(x, o.added, false)
	}
	if begun && o.kind != opRefill {
		q.d.addHole(x)
		raise(&q.d.end, x.to)
		err = q.notHeldError(err)
	}
	q.d.segments.leave(o.first, o.last)
	return err
}

// notHeldError wraps an error of the session in ErrNotHeld, unless the cache is deleted.
func (q *deviceQueue) notHeldError(err error) error {
	if q.d.cache.deleted.Load() {
		return err
	}
	return fmt.Errorf("%w: %w", device.ErrNotHeld, err)
}

// Wait implements device.Queue.
func (q *deviceQueue) Wait(ctx context.Context) error { return q.s.Wait(ctx) }

// Close implements device.Queue.
func (q *deviceQueue) Close() error {
	var done [pollBatch]device.Completion
	return q.s.close(func() { q.Poll(done[:]) })
}
