package redytier

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redykv/redykv/device"
)

// maxLog bounds log addresses, which are 48 bits wide.
const maxLog = 1 << 48

// Device is a [device.Device] over a cache, which holds the most recent part of a log as a
// ring of segments (R87). Begin is the lowest address that it answers; the next tier has the
// rest.
//
// It is volatile: there are no metadata and objects. It is a [device.Refiller]: when a VM of
// the cache is lost, its part of the log becomes holes, as does what is written there until
// the VM is replaced (R83), a write that fails for another reason, and all of the log after
// Start. A tiered device refills holes.
//
// A write never waits for another one. If its place in the ring is still being written with
// an earlier part of the log, or refilled, or a write of a failed connection may still arrive
// there, the write becomes a hole.
type Device struct {
	device.NoObjects

	cache       *Cache
	unavailable func() spans // Cache.unavailable
	arriving    func() spans // Cache.arriving
	segments    *segments
	owned       bool     // Close deletes the cache, or detaches from it
	pieces      *pieces  // nil: the cache is not taken up by another process
	journal     *Journal // nil: there is none

	// The device answers from begin to end, except for holes; top is the end of all
	// requested writes. They only increase. begin passes a segment before top reaches the
	// one that reuses its place, and top passes a write before it is enqueued.
	begin, end, top atomic.Int64
	holes           holes
	closed          atomic.Bool
}

// NewDevice returns a device over a cache, which must have no other use and keeps its capacity
// and SLO ([ErrFixed]). Closing the device does not delete the cache.
func NewDevice(cache *Cache) *Device { return newDevice(cache, nil, false) }

// newDevice is NewDevice with a companion, if the cache may be taken up by another process, and with
// a journal if there is one.
func newDevice(cache *Cache, kept Companion, journal bool) *Device {
	d := &Device{cache: cache, unavailable: cache.unavailable, arriving: cache.arriving}
	d.holes.ready = make(chan struct{}, 1)
	capacity := cache.Capacity()
	if journal {
		d.journal = newJournal(cache, kept != nil)
		capacity -= d.journal.size
	}
	if kept == nil {
		d.segments = newSegments(capacity)
	} else {
		ring, shift, table := layout(capacity)
		d.segments = ring
		d.pieces = newPieces(d, shift, table, kept)
	}
	cache.observe(d)
	return d
}

// Parts implements device.Composite: the cache has one device.
func (d *Device) Parts() []any { return []any{d.cache} }

// String names the device for errors.
func (d *Device) String() string { return "cache " + d.cache.ID() }

// Err is [Cache.Err] of the cache.
func (d *Device) Err() error { return d.cache.Err() }

// Cache is the cache below the device.
func (d *Device) Cache() *Cache { return d.cache }

// Start implements device.Device. The device holds nothing below tail: the part of the log
// that the ring has room for is a hole.
func (d *Device) Start(tail int64) error {
	if tail < 0 || tail > maxLog {
		return fmt.Errorf("redytier: start at %d, want 0 to %d", tail, int64(maxLog))
	}
	if d.cache.deleted.Load() {
		return fmt.Errorf("redytier: start at %d: %w", tail, ErrDeleted)
	}
	d.reach(tail)
	used := false
	if p := d.pieces; p != nil {
		var err error
		if used, err = p.startAt(tail); err != nil {
			return err
		}
		defer offer(p.wake)
	}
	raise(&d.end, tail)
	d.startHoles(tail, used)
	offer(d.holes.ready)
	return nil
}

// startHoles makes a hole of the log below tail. If the ring was used by earlier lives, its
// whole pieces are unchecked instead.
func (d *Device) startHoles(tail int64, used bool) {
	h := &d.holes
	h.mu.Lock()
	defer h.mu.Unlock()
	begin := d.begin.Load()
	h.add(span{0, tail}, begin)
	if !used {
		return
	}
	shift := d.pieces.shift
	if first, end := begin>>shift, tail>>shift; first < end {
		next := *h.current()
		next.spans = next.spans.cut(span{first << shift, end << shift})
		next.unchecked = newUnchecked(shift, first, end)
		h.set.Store(&next)
	}
}

// reach makes room for the log up to top.
func (d *Device) reach(top int64) {
	if g := d.segments; top > 0 {
		raise(&d.begin, g.start(g.of(top-1)+1-int64(len(g.places))))
	}
	raise(&d.top, top)
}

// NewQueue implements device.Device. The queue is a session of the cache.
func (d *Device) NewQueue(depth int) (device.Queue, error) { return d.NewRefillQueue(depth) }

// NewRefillQueue implements device.Refiller.
func (d *Device) NewRefillQueue(depth int) (device.RefillQueue, error) {
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	s, err := d.cache.newSession(depth, d.segments.size)
	if err != nil {
		return nil, err
	}
	return newDeviceQueue(d, s, depth), nil
}

// Alignment implements device.Device: any bytes can be written.
func (d *Device) Alignment() int { return 1 }

// Begin implements device.Device.
func (d *Device) Begin() int64 { return d.begin.Load() }

// Truncate implements device.Device. The ring's memory stays allocated and is reused as the
// log grows.
func (d *Device) Truncate(begin int64) error {
	if begin < 0 || begin > maxLog {
		return fmt.Errorf("redytier: truncate to %d, want 0 to %d", begin, int64(maxLog))
	}
	raise(&d.begin, begin)
	return nil
}

// Sync implements device.Device. The device is volatile: Sync only reports memory that was
// lost since the last call.
func (d *Device) Sync() error {
	d.holes.mu.Lock()
	defer d.holes.mu.Unlock()
	if lost := d.holes.lost; !lost {
		return nil
	}
	d.holes.lost = false
	return fmt.Errorf("redytier: sync: memory of the cache was lost: %w", device.ErrNotHeld)
}

// WriteMeta implements device.Device: a volatile device has none.
func (d *Device) WriteMeta(name string, _ []byte) error {
	return fmt.Errorf("redytier: metadata %q: %w", name, errors.ErrUnsupported)
}

// ReadMeta implements device.Device.
func (d *Device) ReadMeta(name string) ([]byte, error) {
	return nil, fmt.Errorf("redytier: %w: %q", device.ErrNoMeta, name)
}

// raise increases a marker to v if it is lower.
func raise(marker *atomic.Int64, v int64) {
	for old := marker.Load(); old < v && !marker.CompareAndSwap(old, v); old = marker.Load() {
	}
}
