package ssdtier

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/ssdtier/internal/uring"
)

// A queue's ring carries out plain operations: a read or write inside one existing segment. If
// it fails, is short, or does not agree with its checksums, the pool repeats it, and the
// pool's result counts.

// startOnRing gives a request to the ring. It returns false if the request is not plain.
func (q *diskQueue) startOnRing(r *request) bool {
	if q.ring == nil || len(r.buf) == 0 {
		return false
	}
	size := q.d.opts.SegmentSize
	number, off := r.addr/size, r.addr%size
	s := q.d.segments.get(number)
	end := off + int64(len(r.buf))
	if s == nil || end > size || r.write && !s.reserved.hasRoom(end) || !s.acquire() {
		return false
	}
	r.segment, r.off = s, off
	var ok bool
	if r.write {
		s.rewrites.beginWrite(r.span())
		ok = q.ring.Write(s.fd, r.buf, off, uint64(r.number))
	} else {
		ok = q.ring.Read(s.fd, r.buf, off, uint64(r.number))
	}
	if !ok {
		r.leaveRing()
	}
	return ok
}

// span is the request's range in its segment.
func (r *request) span() span { return span{r.off, r.off + int64(len(r.buf))} }

// leaveRing releases the segment of a request on the ring.
func (r *request) leaveRing() {
	if r.write {
		r.segment.rewrites.endWrite(r.span())
	}
	r.segment.release()
	r.segment = nil
}

// reapRing takes the ring's completions. They are checked one by one in settled, so that a
// caller that polls one at a time can start the next operation before the others are checked.
func (q *diskQueue) reapRing() {
	for {
		n := q.ring.Reap(q.reaped[:])
		for _, c := range q.reaped[:n] {
			q.ops[c.Tag].req.res = int(c.Res)
			q.core.End(uint32(c.Tag))
		}
		if n < len(q.reaped) {
			return
		}
	}
}

// settled reports whether there is an operation that is over, the first of core.Ready. It gives
// those before it, which failed on the ring, to the pool.
func (q *diskQueue) settled() bool {
	for ready := q.core.Ready(); len(ready) > 0; ready = q.core.Ready() {
		r := &q.ops[ready[0]].req
		if r.segment == nil {
			return true
		}
		if len(ready) > 1 {
			q.ops[ready[1]].req.prefetch()
		}
		ok := r.wentWell()
		r.leaveRing()
		if ok {
			return true
		}
		q.core.Next()
		q.core.SubmitNow(r.number)
	}
	return false
}

// prefetch prefetches what wentWell will read: the disk has written it to memory, not to the
// caches.
func (r *request) prefetch() {
	if r.segment == nil || r.write {
		return
	}
	mem.PrefetchLines(unsafe.Pointer(unsafe.SliceData(r.buf)), min(len(r.buf), sumUnit))
	r.segment.sums.prefetch(r.off / sumUnit)
}

// wentWell reports whether a request succeeded on the ring.
func (r *request) wentWell() bool {
	switch {
	case r.res != len(r.buf):
		return false
	case r.write:
		r.segment.wrote(r.buf, r.off)
		return true
	default:
		return r.segment.verify(r.buf, len(r.buf), r.off, r.need) == nil
	}
}

// submitRing submits the ring.
func (q *diskQueue) submitRing() {
	if q.ring == nil {
		return
	}
	if err := q.ring.Submit(); err != nil {
		q.giveUpRing(err)
	}
}

// park sleeps until there may be something to gather.
func (q *diskQueue) park(ctx context.Context) error {
	if q.ring == nil {
		return q.core.Park(ctx)
	}
	err := q.ring.Wait(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if q.giveUpRing(err); q.ring != nil {
		return fmt.Errorf("ssdtier: %s: %w", q.d.dir, err) // the pending operations are lost
	}
	return nil
}

// giveUpRing gives the operations that a failed ring has not started to the pool. If no other
// is pending on the ring, the ring is closed and the pool carries out all later ones.
func (q *diskQueue) giveUpRing(why error) {
	if more, ok := q.d.sickRings.pass(time.Now()); ok {
		q.d.opts.Logger.Warn("io_uring failed, the pool carries out its operations", "dir", q.d.dir, "err", why, "unlogged", more)
	}
	for tag, ok := q.ring.Retract(); ok; tag, ok = q.ring.Retract() {
		r := &q.ops[tag].req
		r.leaveRing()
		q.core.SubmitNow(r.number)
	}
	if q.ring.Pending() > 0 {
		return
	}
	if err := q.ring.Close(); err != nil {
		q.d.opts.Logger.Warn("closing a failed io_uring", "dir", q.d.dir, "err", err)
	}
	q.ring = nil
	q.core.WakeWith(nil)
}

// chooseEngine decides whether queues have rings.
func (d *Device) chooseEngine() error {
	if d.opts.Engine == EnginePool {
		return nil
	}
	err := uring.Probe()
	if d.rings = err == nil; d.rings {
		return nil
	}
	if d.opts.Engine == EngineUring {
		return fmt.Errorf("ssdtier: %s: engine %s: %w", d.dir, EngineUring, err)
	}
	d.opts.Logger.Info("no io_uring: a pool of threads reads and writes", "dir", d.dir, "err", err)
	return nil
}

// errSpare is the reason for which a queue gets no ring although io_uring works.
var errSpare = errors.New("half of the process's file descriptors are used by rings")

// newRing makes the ring of a new queue, or returns nil if the pool is to serve it.
func (d *Device) newRing(depth int) (*uring.Ring, error) {
	if !d.rings {
		return nil, nil
	}
	err := errSpare
	if d.opts.Engine == EngineUring || uring.Spare() {
		ring, e := uring.New(depth)
		if e == nil || d.opts.Engine == EngineUring {
			return ring, e
		}
		err = e
	}
	if !d.ringless.Swap(true) {
		d.opts.Logger.Warn("no io_uring for some queues: the pool carries out their operations", "dir", d.dir, "err", err)
	}
	return nil, nil
}
