package redytier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redykv/redykv/device"
)

// maxLog bounds log addresses, which are 48 bits wide.
const maxLog = 1 << 48

// Device puts a cache under a log: a [device.Device] that holds the log's most
// recent part, as a ring of segments (R87). What the log has outgrown is dropped,
// Begin says from where on the device answers, and the next tier has the rest.
//
// It is volatile: Start empties it, and there are no metadata and objects. When a VM of the
// cache is lost, reads and writes there fail with ErrRegionUnavailable, and Start
// fails with it from then on: the memory is gone until a new cache is made.
//
// A write never waits for another. Where its place in the ring is still being
// written with an earlier part of the log, which takes more than the capacity
// under way at once, the device drops the write and all before it.
type Device struct {
	device.NoObjects

	cache    *Cache
	segments *segments
	owned    bool // Close deletes the cache

	// begin and end bound what the device answers for. They only move up. begin
	// passes a segment before a write that reuses its place is enqueued.
	begin, end atomic.Int64
	closed     atomic.Bool
}

var _ device.Device = (*Device)(nil)

// NewDevice returns a device over a cache, which must have no other use. Closing
// the device leaves the cache alone.
func NewDevice(cache *Cache) *Device {
	return &Device{cache: cache, segments: newSegments(cache.Capacity())}
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

// Cache is the cache below the device.
func (d *Device) Cache() *Cache { return d.cache }

// Start implements device.Device: the device holds nothing below tail.
func (d *Device) Start(tail int64) error {
	if tail < 0 || tail > maxLog {
		return fmt.Errorf("redytier: start at %d", tail)
	}
	if err := d.cache.Err(); err != nil {
		return fmt.Errorf("redytier: start at %d: %w", tail, err)
	}
	raise(&d.end, tail)
	raise(&d.begin, tail)
	return nil
}

// NewQueue implements device.Device. The queue is a session of the cache.
func (d *Device) NewQueue(depth int) (device.Queue, error) {
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
// nothing to do.
func (d *Device) Sync() error { return nil }

// WriteMeta implements device.Device: a volatile device has none.
func (d *Device) WriteMeta(name string, _ []byte) error {
	return fmt.Errorf("redytier: metadata %q: %w", name, errors.ErrUnsupported)
}

// ReadMeta implements device.Device.
func (d *Device) ReadMeta(name string) ([]byte, error) {
	return nil, fmt.Errorf("redytier: %w: %q", device.ErrNoMeta, name)
}

// Close implements device.Device.
func (d *Device) Close() error {
	if d.closed.Swap(true) || !d.owned {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	if err := d.cache.Delete(ctx); err != nil && !errors.Is(err, ErrDeleted) {
		return err
	}
	return nil
}

// raise moves a marker up to v, never down.
func raise(marker *atomic.Int64, v int64) {
	for old := marker.Load(); old < v && !marker.CompareAndSwap(old, v); old = marker.Load() {
	}
}
