package ssdtier

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/redykv/redykv/device"
)

// A file that grows with every write is slow to write: the file system lets in one
// such write at a time, and changes its metadata with each. So a segment takes space
// ahead of the log. What the file has beyond the log was never written: it has no
// checksums, and reads say that it is not held. Start and Close give it back.
//
// minReserve is what is taken ahead at least. A log that is longer takes as much as it
// is long, up to Options.Preallocate, so that a small one takes little.
const minReserve = 1 << 20

// reservation is the space that a segment's file has.
type reservation struct {
	// end is an offset: writes up to there find space, and do not change the length
	// of the file. Others go to the pool, which takes more first. noReserve: all
	// writes do without.
	end atomic.Int64
	mu  sync.Mutex // held by who takes more
}

const noReserve = math.MaxInt64

// hasRoom reports whether a write that ends at an offset need not wait for space.
func (r *reservation) hasRoom(end int64) bool { return end <= r.end.Load() }

// reserve takes space for a write that ends at an offset, and ahead of it. Where it
// cannot, the write goes on without, and finds out itself what is wrong.
func (d *Device) reserve(s *segment, end int64) {
	r := &s.reserved
	if r.hasRoom(end) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hasRoom(end) {
		return // somebody else has taken it meanwhile
	}
	to := d.ahead(s, end)
	err := d.preallocate(s, to)
	if isFull(err) {
		to = end // there may be space for the write itself
		err = d.preallocate(s, to)
	}
	switch {
	case err == nil:
		r.end.Store(to)
	case !isFull(err) && !errors.Is(err, device.ErrTransient):
		r.end.Store(noReserve)
		if !d.noReserve.Swap(true) {
			d.opts.Logger.Info("no space can be taken ahead of a log here", "dir", d.dir, "err", err)
		}
	}
}

// preallocate takes space for a segment up to an offset. The caller holds the
// reservation's mu.
func (d *Device) preallocate(s *segment, to int64) error {
	if d.noReserve.Load() {
		return errors.ErrUnsupported
	}
	return d.withSpace(func() error { return preallocate(s.file, s.reserved.end.Load(), to) })
}

// ahead is up to where space is taken for a write that ends at an offset.
func (d *Device) ahead(s *segment, end int64) int64 {
	logEnd := s.number*d.opts.SegmentSize + end
	return min(end+min(max(logEnd, minReserve), d.opts.Preallocate), d.opts.SegmentSize)
}

// isFull reports whether an error is for want of space.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
