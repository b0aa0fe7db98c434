package redytier

import (
	"fmt"

	"github.com/redykv/redykv/device"
)

var (
	_ observer        = (*Device)(nil)
	_ device.Refiller = (*Device)(nil)
)

// lost implements observer: the log addresses stored there become holes.
func (d *Device) lost(at span) {
	d.holes.mu.Lock()
	defer d.holes.mu.Unlock()
	begin := d.begin.Load()
	for _, x := range d.living(at) {
		d.holes.add(x, begin)
		d.holes.lost = true
	}
}

// restored implements observer. All log addresses stored there become holes again, including
// those that were written since lost or are being written: the new memory holds none of them.
//
// No write is missed: one that reached the old memory had raised top before its session
// read the cache's table, which lost changed earlier.
func (d *Device) restored(at span) {
	d.lost(at)
	offer(d.holes.ready)
	if d.pieces != nil {
		offer(d.pieces.wake) // the cache may have another identity
	}
}

// settled implements observer.
func (d *Device) settled() {
	h := &d.holes
	h.mu.Lock()
	defer h.mu.Unlock()
	h.setLate(h.late.within(d.arriving()))
	offer(h.ready)
}

// unavailable returns the addresses without memory.
func (c *Cache) unavailable() spans {
	return c.where(func(r *region) bool { return r.endpoint == nil })
}

// arriving returns the addresses where a write of a failed connection may still arrive. It would
// overwrite what another session writes or refills.
func (c *Cache) arriving() spans {
	return c.where(func(r *region) bool { return r.endpoint != nil && r.endpoint.grant.unsettled.Load() > 0 })
}

func (c *Cache) where(is func(*region) bool) (all spans) {
	t := c.table.Load()
	for i, r := range t.regions.all() {
		if is(r) {
			all = all.add(t.span(i))
		}
	}
	return all
}

// places returns the cache addresses of a part of the log that is not longer than the ring.
func (d *Device) places(x span) spans {
	from := x.from % d.segments.size
	to := from + x.to - x.from
	return spans{}.add(span{from, min(to, d.segments.size)}).add(span{0, to - d.segments.size})
}

// living returns the log addresses that are stored, or being written, at cache addresses.
func (d *Device) living(at span) []span {
	size := d.segments.size
	begin, top := d.begin.Load(), d.top.Load()
	at.to = min(at.to, size)
	var all []span
	for lap := begin / size * size; lap < top; lap += size {
		if x := (span{max(lap+at.from, begin), min(lap+at.to, top)}); x.from < x.to {
			all = append(all, x)
		}
	}
	return all
}

// fillable returns the holes that have memory, which nothing else writes to. The caller holds
// holes.mu.
func (d *Device) fillable() spans {
	free := d.holes.current().spans.cut(span{0, d.begin.Load()})
	if len(free) == 0 {
		return nil
	}
	for _, x := range d.holes.fills {
		free = free.cut(x)
	}
	for _, places := range []spans{d.unavailable(), d.arriving()} {
		for _, at := range places {
			for _, x := range d.living(at) {
				free = free.cut(x)
			}
		}
	}
	return free
}

// Hole implements device.Refiller.
func (d *Device) Hole(below int64, n int) device.Hole {
	h := &d.holes
	h.mu.Lock()
	defer h.mu.Unlock()
	free := d.fillable()
	for i := len(free) - 1; i >= 0; i-- {
		if x := free[i]; x.from < below {
			to := min(x.to, below)
			from := (to - 1) / int64(n) * int64(n)
			return device.Hole{From: max(x.from, from), To: to, Ticket: h.current().added}
		}
	}
	return device.Hole{}
}

// Missing implements device.Refiller.
func (d *Device) Missing() int64 {
	d.holes.mu.Lock()
	defer d.holes.mu.Unlock()
	set, begin := d.holes.current(), d.begin.Load()
	return set.spans.cut(span{0, begin}).size() + set.unchecked.missing(begin)
}

// HoleReady implements device.Refiller.
func (d *Device) HoleReady() <-chan struct{} { return d.holes.ready }

// Missed implements device.Refiller.
func (d *Device) Missed(from, to int64) {
	if from >= to {
		return
	}
	d.reach(to)
	raise(&d.end, to)
	d.addHole(span{from, to})
}

// addHole makes a hole of what a write failed to store.
func (d *Device) addHole(x span) {
	d.holes.mu.Lock()
	defer d.holes.mu.Unlock()
	d.holes.add(x, d.begin.Load())
}

// addLate notes that a write or refill of x has failed. Nothing else is stored at its place while it
// may still arrive there.
func (d *Device) addLate(x span) {
	h := &d.holes
	h.mu.Lock()
	defer h.mu.Unlock()
	late := h.late
	for _, at := range d.places(x).within(d.arriving()) {
		late = late.add(at)
	}
	h.setLate(late)
}

// rewrite prepares a write to x that overlaps a hole, or whose place a failed write may still reach.
// All of x becomes a hole, which the write fills, unless another fill of it is pending or a failed
// write may reach it.
func (d *Device) rewrite(x span) (added uint64, kind opKind) {
	h := &d.holes
	h.mu.Lock()
	defer h.mu.Unlock()
	late := len(h.late.within(d.places(x))) > 0
	if added, hole := h.look(x); !hole && !late {
		return added, opWrite
	}
	h.add(x, d.begin.Load())
	if late || !h.fill(x) {
		return h.current().added, opRefused
	}
	return h.current().added, opFill
}

// refill prepares the refill of a hole, which must not have changed since its ticket was
// issued.
func (d *Device) refill(hole device.Hole) (added uint64, err error) {
	h := &d.holes
	h.mu.Lock()
	defer h.mu.Unlock()
	x := span{hole.From, hole.To}
	if h.since(hole.Ticket, x) || !d.fillable().cover(x) || !h.fill(x) {
		return 0, fmt.Errorf("redytier: refill of [%d, %d): %w", hole.From, hole.To, errHole)
	}
	return h.current().added, nil
}

// Refill implements device.RefillQueue. It enters its segments like a write, so that it does
// not race with writes of a later lap.
func (q *deviceQueue) Refill(src []byte, hole device.Hole, tag uint64) error {
	i, err := q.freeOp()
	if err != nil {
		return err
	}
	g := q.d.segments
	if n := hole.To - hole.From; n <= 0 || n != int64(len(src)) || hole.From < 0 || hole.To > q.d.top.Load() {
		return fmt.Errorf("%w: %d bytes for [%d, %d)", ErrOutOfRange, len(src), hole.From, hole.To)
	}
	first, last := g.of(hole.From), g.of(hole.To-1)
	if g.enter(first, last) != entered {
		return fmt.Errorf("redytier: refill of [%d, %d): its place is in use: %w", hole.From, hole.To, device.ErrNotHeld)
	}
	added, err := q.d.refill(hole)
	if err != nil {
		g.leave(first, last)
		return err
	}
	o := deviceOp{
		tag: tag, kind: opRefill, addr: hole.From, n: len(src),
		held: hole.From, first: first, last: last, added: added,
	}
	return q.write(i, src, o)
}
