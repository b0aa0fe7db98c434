package ssdtier

import (
	"context"
	"fmt"

	"github.com/redykv/redykv/internal/uring"
)

// A queue's ring carries out what is plain: a read or write of one segment, which is
// there. If that goes well, it is over. If it does not, because it came back short,
// failed, or does not agree with its checksums, the pool does it from the beginning,
// and what the pool says holds.

// startOnRing hands a request to the ring. It returns false if it is none for a ring.
func (q *queue) startOnRing(r *request) bool {
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
		ok = q.ring.Write(s.fd, r.buf, off, uint64(r.slot))
	} else {
		ok = q.ring.Read(s.fd, r.buf, off, uint64(r.slot))
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

// reapRing takes what the ring has completed.
func (q *queue) reapRing() {
	for {
		n := q.ring.Reap(q.reaped[:])
		for _, c := range q.reaped[:n] {
			r := &q.slots[c.Tag].req
			ok := r.wentWell(int(c.Res))
			r.leaveRing()
			if ok {
				q.ready = append(q.ready, r.slot)
			} else {
				q.handOver(r)
			}
		}
		if n < len(q.reaped) {
			return
		}
	}
}

// wentWell says whether a request that the ring is through with is over.
func (r *request) wentWell(res int) bool {
	switch {
	case res != len(r.buf):
		return false
	case r.write:
		r.segment.wrote(r.buf, r.off)
		return true
	default:
		return r.segment.verify(r.buf, len(r.buf), r.off, r.need) == nil
	}
}

// submitRing rings the doorbell.
func (q *queue) submitRing() {
	if q.ring == nil {
		return
	}
	if err := q.ring.Submit(); err != nil {
		q.giveUpRing(err)
	}
}

// parkOnRing is park with a ring.
func (q *queue) parkOnRing(ctx context.Context) error {
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
func (q *queue) giveUpRing(why error) {
	q.d.opts.Logger.Warn("io_uring fails, the pool takes over", "dir", q.d.dir, "err", why)
	for tag, ok := q.ring.Retract(); ok; tag, ok = q.ring.Retract() {
		r := &q.slots[tag].req
		r.leaveRing()
		q.handOver(r)
	}
	if q.ring.UnderWay() > 0 {
		return
	}
	if err := q.ring.Close(); err != nil {
		q.d.opts.Logger.Warn("closing an io_uring that failed", "dir", q.d.dir, "err", err)
	}
	q.mu.Lock()
	q.ring = nil // complete looks at it
	q.mu.Unlock()
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

// newRing makes the ring of a new queue, if the device's engine has them.
func (d *Device) newRing(depth int) (*uring.Ring, error) {
	if !d.rings {
		return nil, nil
	}
	ring, err := uring.New(depth)
	if err == nil {
		return ring, nil
	}
	if d.opts.Engine == EngineUring {
		return nil, err
	}
	d.opts.Logger.Warn("no io_uring for a queue, the pool serves it", "dir", d.dir, "err", err)
	return nil, nil
}
