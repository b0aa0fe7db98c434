package ssdtier

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/redykv/redykv/device"
)

// A segment allocates space ahead of the log, for its blocks and for their checksums: a full disk
// has the space of all checksums that a Sync may have to store. The space of blocks beyond the log
// was never written: it has no checksums, and reads of it return ErrNotHeld. Start and Close release
// it.
//
// minReserve is the least space that is allocated ahead. A longer log allocates its own
// length, up to Options.Preallocate, so that a small one takes little.
const minReserve = 1 << 20

// reservation is the space that a segment's file has.
type reservation struct {
	// end is an offset: writes up to there have space, and do not change the length of
	// the file. Others go to the pool, which allocates more first. noReserve: nothing is
	// allocated ahead.
	end atomic.Int64
	mu  sync.Mutex // serializes allocations, and guards the next field
	// sums is the length up to which the file of sums has space.
	sums int64
}

const noReserve = math.MaxInt64

// hasRoom reports whether a write that ends at an offset has space.
func (r *reservation) hasRoom(end int64) bool { return end <= r.end.Load() }

// reserve allocates space for a write that ends at an offset, and beyond it. If there is none, that is
// an error. After another failure the write is tried nevertheless, and returns its own error.
func (d *Device) reserve(s *segment, end int64) error {
	r := &s.reserved
	if r.hasRoom(end) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hasRoom(end) {
		return nil // another write has allocated it meanwhile
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
	case isFull(err):
		return err
	case !errors.Is(err, device.ErrTransient):
		r.end.Store(noReserve)
		if !d.noReserve.Swap(true) {
			d.opts.Logger.Info("the file system cannot allocate space ahead of the log", "dir", d.dir, "err", err)
		}
	}
	return nil
}

// preallocate allocates space for a segment, and for its sums, up to an offset. The caller holds the
// reservation's mu.
func (d *Device) preallocate(s *segment, to int64) error {
	if d.noReserve.Load() {
		return errors.ErrUnsupported
	}
	return d.withSpace(func() error {
		if err := s.reserveSums(to); err != nil {
			return err
		}
		return preallocate(s.file, s.reserved.end.Load(), to)
	})
}

// reserveSums allocates space for the sums of the blocks up to an offset, unless their file was removed.
func (s *segment) reserveSums(to int64) (err error) {
	r := &s.reserved
	end := sumsEnd(to)
	if end <= r.sums {
		return nil
	}
	f, err := openFile(s.sumPath, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := preallocateOnly(f, r.sums, end); err != nil {
		return err
	}
	r.sums = end
	return nil
}

// sumsEnd is the length of a file that has the sums of the blocks up to an offset.
func sumsEnd(to int64) int64 { return sumPageSize * (1 + (to+pageSpan-1)/pageSpan) }

// ahead is the offset up to which space is allocated for a write that ends at an offset.
func (d *Device) ahead(s *segment, end int64) int64 {
	logEnd := s.number*d.opts.SegmentSize + end
	return min(end+min(max(logEnd, minReserve), d.opts.Preallocate), d.opts.SegmentSize)
}

// isFull reports whether an error means that there is no space.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
