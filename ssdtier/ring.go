package ssdtier

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/ssdtier/internal/uring"
)

// A queue's ring carries out what is plain: a read or write of one segment, which is
// there. If that goes well, it is over. If it does not, because it came back short,
// failed, or does not agree with its checksums, the pool does it from the beginning,
// and what the pool says holds.

// startOnRing hands a request to the ring. It returns false if it is none for a ring.
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

// span is what the request covers of its segment.
func (r *request) span() span { return span{r.off, r.off + int64(len(r.buf))} }

// leaveRing gives back what a request for the ring has taken.
func (r *request) leaveRing() {
	if r.write {
		r.segment.rewrites.endWrite(r.span())
	}
	r.segment.release()
	r.segment = nil
}

// reapRing takes what the ring has completed. What that is worth is found out when its
// turn comes, in settled: whoever polls one at a time starts the next operation before the
// others have been looked at.
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

// settled reports whether the first of core.Ready is over. Operations before it with which
// the ring did not do well go to the pool.
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

// prefetch brings closer what wentWell will look at: the disk has put it in memory, not
// in the caches.
func (r *request) prefetch() {
	if r.segment == nil || r.write {
		return
	}
	mem.PrefetchLines(unsafe.Pointer(unsafe.SliceData(r.buf)), min(len(r.buf), sumUnit))
	r.segment.sums.prefetch(r.off / sumUnit)
}

// wentWell reports whether a request that the ring is through with is over.
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

// submitRing rings the doorbell.
func (q *diskQueue) submitRing() {
	if q.ring == nil {
		return
	}
	if err := q.ring.Submit(); err != nil {
		q.giveUpRing(err)
	}
}

// parkOnRing is park with a ring.
func (q *diskQueue) parkOnRing(ctx context.Context) error {
	err := q.ring.Wait(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if q.giveUpRing(err); q.ring != nil {
		return fmt.Errorf("ssdtier: %s: %w", q.d.dir, err) // nobody tells what is under way
	}
	return nil
}

// giveUpRing hands what a ring that fails has not started to the pool, as all that
// comes later if nothing else is under way on the ring.
func (q *diskQueue) giveUpRing(why error) {
	q.d.opts.Logger.Warn("io_uring fails, the pool takes over", "dir", q.d.dir, "err", why)
	for tag, ok := q.ring.Retract(); ok; tag, ok = q.ring.Retract() {
		r := &q.ops[tag].req
		r.leaveRing()
		q.core.SubmitNow(r.number)
	}
	if q.ring.UnderWay() > 0 {
		return
	}
	if err := q.ring.Close(); err != nil {
		q.d.opts.Logger.Warn("closing an io_uring that failed", "dir", q.d.dir, "err", err)
	}
	q.ring = nil
	q.core.WakeWith(nil)
}

// chooseEngine finds out whether queues are to have rings.
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
	d.opts.Logger.Info("no io_uring here, a pool of threads reads and writes", "dir", d.dir, "err", err)
	return nil
}

// errSpare is why a queue gets no ring though one could be made.
var errSpare = errors.New("half of the process's file descriptors belong to rings already")

// newRing makes the ring of a new queue, if the device's engine has them.
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
		d.opts.Logger.Warn("no io_uring for some queues, the pool serves them", "dir", d.dir, "err", err)
	}
	return nil, nil
}
