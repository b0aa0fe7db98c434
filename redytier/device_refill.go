package redytier

import (
	"fmt"

	"github.com/redykv/redykv/device"
)

var (
	_ observer        = (*Device)(nil)
	_ device.Refiller = (*Device)(nil)
)

// lost implements observer. What lived there are holes.
func (d *Device) lost(from, to int64) {
	d.lose(span{from, to})
}

// restored implements observer. Holes are made once more of all that lives there,
// written since lost or still being written: the new memory holds none of it, and
// nobody has seen it yet.
//
// No write is missed. One that reached the old memory had raised top before its
// session looked for the cache's version, which lost changed, which was before.
func (d *Device) restored(from, to int64) {
	d.lose(span{from, to})
	offer(d.holes.ready)
}

// lose makes holes of what lives at some of the cache's addresses.
func (d *Device) lose(at span) {
	d.holes.mu.Lock()
	defer d.holes.mu.Unlock()
	begin := d.begin.Load()
	for _, x := range d.living(at) {
		d.holes.add(x, begin)
		d.holes.lost = true
	}
}

// unavailable returns the addresses that have no memory at this moment.
func (c *Cache) unavailable() (none spans) {
	t := c.table.Load()
	for i := range t.regions {
		if t.regions[i].endpoint == nil {
			from, to := t.span(i)
			none = none.add(span{from, to})
		}
	}
	return none
}

// living returns the log's addresses that live at some of the cache's, or are being
// written there.
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

// fillable returns the holes that have memory and are not being filled. The caller
// holds the holes' mu.
func (d *Device) fillable() spans {
	free := d.holes.current().spans.cut(span{0, d.begin.Load()})
	if len(free) == 0 {
		return nil
	}
	for _, x := range d.holes.fills {
		free = free.cut(x)
	}
	for _, at := range d.unavailable() {
		for _, x := range d.living(at) {
			free = free.cut(x)
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
	return d.holes.current().spans.cut(span{0, d.begin.Load()}).size()
}

// HoleReady implements device.Refiller.
func (d *Device) HoleReady() <-chan struct{} { return d.holes.ready }

// addHole makes a hole of what a write failed to store.
func (d *Device) addHole(x span) {
	d.holes.mu.Lock()
	defer d.holes.mu.Unlock()
	d.holes.add(x, d.begin.Load())
}

// rewrite prepares a write to x, of which a part was a hole a moment ago. All of x
// is one from now on, and filled by the write; unless something else is being
// written there, which would race with it.
func (d *Device) rewrite(x span) (added uint64, kind opKind) {
	h := &d.holes
	h.mu.Lock()
	defer h.mu.Unlock()
	if added, hole := h.look(x); !hole {
		return added, opWrite
	}
	h.add(x, d.begin.Load())
	if !h.fill(x) {
		return h.current().added, opRefused
	}
	return h.current().added, opFill
}

// refill prepares the refill of a hole: it must be as it was when the ticket was
// given.
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

// Refill implements device.RefillQueue. It enters its segments as a write does, so
// that it never meets a later lap's.
func (q *deviceQueue) Refill(src []byte, hole device.Hole, tag uint64) error {
	slot, err := q.freeOp()
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
	return q.write(slot, src, o)
}
