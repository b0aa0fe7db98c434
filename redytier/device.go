package redytier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/fabric"
)

// maxLog bounds log addresses, which are 48 bits wide.
const maxLog = 1 << 48

// Device puts a cache under a log: a [device.Device] that holds the log's most
// recent part, as a ring of segments (R87). What the log has outgrown is dropped,
// Begin says from where on the device answers, and the next tier has the rest.
//
// It is volatile: there are no metadata and objects. It is a [device.Refiller]: when
// a VM of the cache is lost, what was there are holes, and what is written there
// until the VM is replaced (R83). So is a write that fails for another reason, and
// all of the log after Start. A tiered device fills them again.
//
// A write never waits for another. Where its place in the ring is still being
// written with an earlier part of the log, or refilled, the write becomes a hole.
type Device struct {
	device.NoObjects

	cache       *Cache
	unavailable func() spans // the cache's
	segments    *segments
	owned       bool // Close deletes the cache

	// begin and end bound what the device answers for, but for the holes, and top
	// is the end of what was ever asked to be written. They only move up. begin
	// passes a segment before top reaches the one that reuses its place, and top
	// a write before it is enqueued.
	begin, end, top atomic.Int64
	holes           holes
	closed          atomic.Bool
}

// NewDevice returns a device over a cache, which must have no other use, and keeps its
// capacity and SLO from then on ([ErrFixed]). Closing the device leaves the cache alone.
func NewDevice(cache *Cache) *Device {
	d := &Device{cache: cache, unavailable: cache.unavailable, segments: newSegments(cache.Capacity())}
	d.holes.ready = make(chan struct{}, 1)
	cache.observe(d)
	return d
}

// Open creates a cache and returns a device over it. Closing the device deletes
// the cache.
func Open(ctx context.Context, mgr Manager, cfg Config) (*Device, error) {
	cache, err := Create(ctx, mgr, cfg)
	if err != nil {
		return nil, err
	}
	d := NewDevice(cache)
	d.owned = true
	return d, nil
}

// Parts implements device.Composite: the cache has one device.
func (d *Device) Parts() []any { return []any{d.cache} }

// String names the device for errors.
func (d *Device) String() string { return "cache " + d.cache.ID() }

// Err is nil while all of the cache's memory is there; else it says why not, as
// [Cache.Err] does.
func (d *Device) Err() error { return d.cache.Err() }

// Cache is the cache below the device.
func (d *Device) Cache() *Cache { return d.cache }

// Start implements device.Device: the device holds nothing below tail. As much of
// it as the ring has room for is a hole.
func (d *Device) Start(tail int64) error {
	if tail < 0 || tail > maxLog {
		return fmt.Errorf("redytier: start at %d", tail)
	}
	if d.cache.deleted.Load() {
		return fmt.Errorf("redytier: start at %d: %w", tail, ErrDeleted)
	}
	d.reach(tail)
	raise(&d.end, tail)
	d.addHole(span{0, tail})
	offer(d.holes.ready)
	return nil
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
	s, err := d.newSession(depth)
	if err != nil {
		return nil, err
	}
	return newDeviceQueue(d, s, depth), nil
}

// newSession makes a session. A VM that cannot be connected to may just have been lost:
// that is found out first, since a session does without the memory of a VM that is lost.
func (d *Device) newSession(depth int) (*Session, error) {
	c, late := d.cache, 0
	for failed := 0; ; {
		s, err := c.newSession(depth, d.segments.size)
		var missing *unreachable
		if !errors.As(err, &missing) || errors.Is(err, fabric.ErrRejected) || c.deleted.Load() {
			return s, err
		}
		g := missing.grant
		if cause := c.probe(c.ctx, g); cause != nil && c.ctx.Err() == nil && !c.inconclusive(g, cause, &late) {
			c.lose(g, cause)
		} else if failed++; failed == maxLate {
			return nil, err
		}
	}
}

// Alignment implements device.Device: any bytes can be written.
func (d *Device) Alignment() int { return 1 }

// Begin implements device.Device.
func (d *Device) Begin() int64 { return d.begin.Load() }

// Truncate implements device.Device. The ring's memory is not given back; it is
// reused as the log grows.
func (d *Device) Truncate(begin int64) error {
	if begin < 0 || begin > maxLog {
		return fmt.Errorf("redytier: truncate to %d", begin)
	}
	raise(&d.begin, begin)
	return nil
}

// Sync implements device.Device. Nothing here outlives the cache, so there is
// nothing to do but to say what did not live as long.
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

// Close implements device.Device. A manager that cannot be told is no error: the
// servers have been told, and the manager finds that the cache's lease is not renewed.
func (d *Device) Close() error {
	if d.closed.Swap(true) || !d.owned {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	err := d.cache.Delete(ctx)
	switch {
	case errors.Is(err, ErrDeleted):
		return nil
	case connect.CodeOf(err) == connect.CodeUnavailable:
		d.cache.log.Warn("the manager does not know that the cache is gone", "err", err)
		return nil
	}
	return err
}

// raise moves a marker up to v, never down.
func raise(marker *atomic.Int64, v int64) {
	for old := marker.Load(); old < v && !marker.CompareAndSwap(old, v); old = marker.Load() {
	}
}
