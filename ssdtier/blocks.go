package ssdtier

import (
	"errors"
	"fmt"
	"io"

	"github.com/redykv/redykv/device"
)

// readAt fills buf, whole blocks or sectors inside one segment, from addr. Only the first
// need bytes are required: a file that was written without sums may end within the last
// block.
func (d *Device) readAt(buf []byte, addr int64, need int) error {
	number, off := addr/d.opts.SegmentSize, addr%d.opts.SegmentSize
	s := d.segments.get(number)
	if s == nil || !s.acquire() {
		d.mu.Lock()
		defer d.mu.Unlock()
		return fmt.Errorf("%d bytes at %d: %w", len(buf), addr, d.noSegment(number))
	}
	defer s.release()
	err := s.read(buf, off, need)
	if errors.Is(err, device.ErrCorrupt) {
		s.rewrites.look(span{off, off + int64(len(buf))}, func() { err = s.read(buf, off, need) })
	}
	if err != nil {
		return fmt.Errorf("%d bytes at %d: %w", len(buf), addr, err)
	}
	return nil
}

// noSegment is the error of an address in a segment that does not exist; its sums show
// whether it should. The caller holds mu.
func (d *Device) noSegment(number int64) error {
	path := d.path(segmentName(number))
	if number < d.begin.Load()/d.opts.SegmentSize {
		return fmt.Errorf("segment %s was truncated: %w", path, device.ErrNotHeld)
	}
	if d.summed[number] && d.segments.get(number) == nil {
		return fmt.Errorf("%s is missing, but its checksums exist, restore it: %w", path, device.ErrCorrupt)
	}
	all := d.segments.all()
	if n := len(all); n > 0 && number < all[n-1].number {
		return fmt.Errorf("segment %s and its checksums are missing, but later segments exist, restore them: %w", path, device.ErrNotHeld)
	}
	return fmt.Errorf("segment %s does not exist: %w", path, device.ErrNotHeld)
}

// read fills buf from an offset in the file, and compares whole blocks with their sums.
func (s *segment) read(buf []byte, off int64, need int) error {
	n, err := s.file.ReadAt(buf, off)
	if err != nil && !s.endsAt(off+int64(n), err) {
		return wrap(err)
	}
	return s.verify(buf, n, off, need)
}

// verify compares the blocks that were read into buf from an offset, n bytes, with their
// sums, up to need. Of a block that was read in part it checks only that it was written.
func (s *segment) verify(buf []byte, n int, off int64, need int) error {
	var next int
	for at := 0; at < need; at = next {
		block := (off + int64(at)) / sumUnit
		next = int((block+1)*sumUnit - off)
		sum := s.sums.get(block)
		if sum == sumUnverified {
			if n < min(next, need) {
				return fmt.Errorf("%s ends at offset %d: %w", s.file.Name(), off+int64(n), device.ErrNotHeld)
			}
			continue
		}
		want := min(next, len(buf)) - at
		if err := s.checkBlock(buf[at:min(next, max(n, at))], want, off+int64(at), sum); err != nil {
			return err
		}
	}
	return nil
}

// checkBlock compares the block at an offset, or the want bytes of it that were read, with
// its sum.
func (s *segment) checkBlock(block []byte, want int, off int64, sum uint64) error {
	switch {
	case sum == sumNone && (len(block) == 0 || off >= s.written.Load()):
		return fmt.Errorf("%s: nothing was written to the block at offset %d: %w", s.file.Name(), off, device.ErrNotHeld)
	case sum == sumNone && s.sumsErr != nil:
		return fmt.Errorf("%s: no checksum of the block at offset %d: %w: %w", s.file.Name(), off, s.sumsErr, device.ErrCorrupt)
	case sum == sumNone:
		return fmt.Errorf("%s: the block at offset %d has no checksum, it was not written whole or its checksum was lost: %w",
			s.file.Name(), off, device.ErrCorrupt)
	case len(block) < want:
		return fmt.Errorf("%s is cut short: it ends at offset %d: %w", s.file.Name(), off+int64(len(block)), device.ErrCorrupt)
	case want == sumUnit && sumOf(block) != sum:
		return fmt.Errorf("%s: the block at offset %d does not match its checksum: %w",
			s.file.Name(), off, device.ErrCorrupt)
	}
	return nil
}

// endsAt reports whether a read stopped at the end of the file. Direct I/O may return
// another error than io.EOF: if the file ends inside a block, the next read is not aligned.
func (s *segment) endsAt(off int64, err error) bool {
	if errors.Is(err, io.EOF) {
		return true
	}
	info, err := s.file.Stat()
	return err == nil && info.Size() <= off
}

// writeAt stores buf, whole blocks inside one segment, at addr, and sets their sums. A write
// to a segment below Begin is dropped. If the write fails the sums stay, and reads detect
// what was changed.
func (d *Device) writeAt(buf []byte, addr int64) error {
	number, off := addr/d.opts.SegmentSize, addr%d.opts.SegmentSize
	s, err := d.segmentToWrite(number)
	if s == nil || !s.acquire() {
		return err
	}
	defer s.release()
	whole := span{off, off + int64(len(buf))}
	s.rewrites.beginWrite(whole)
	defer s.rewrites.endWrite(whole)
	if err = d.reserve(s, whole.to); err == nil {
		err = d.withSpace(func() error {
			_, err := s.file.WriteAt(buf, off)
			return err
		})
	}
	if err == nil {
		s.wrote(buf, off)
	}
	s.dirty.Store(true)
	if err != nil {
		return fmt.Errorf("ssdtier: write of %d bytes at %d: %w", len(buf), addr, err)
	}
	return nil
}

// wrote notes that buf was written at an offset.
func (s *segment) wrote(buf []byte, off int64) {
	s.has(buf, off)
	// Last: a Sync that begins afterwards forgets the blocks, and syncs the segment.
	s.d.journal.recent.add(buf, s.number*s.d.opts.SegmentSize+off, s.d.block)
}

// has sets the sums of buf, which the segment has at an offset.
func (s *segment) has(buf []byte, off int64) {
	if a := s.accepted.Load(); a != nil && a.number >= off/sumUnit && a.number < (off+int64(len(buf)))/sumUnit {
		s.accepted.Store(nil)
	}
	s.sums.fill(off/sumUnit, buf)
	s.raiseWritten(off + int64(len(buf)))
	s.dirty.Store(true)
}

// raiseWritten notes that blocks up to an offset were written.
func (s *segment) raiseWritten(end int64) {
	for old := s.written.Load(); old < end && !s.written.CompareAndSwap(old, end); {
		old = s.written.Load()
	}
}

// accept sets the sum of the block in which the log ends, at an offset in the segment, from
// the file, if the block agrees with its old sum or is that block grown. Otherwise reads of
// it fail. The device reads at least align bytes.
func (s *segment) accept(tail int64, align int) error {
	number := tail / sumUnit
	sum := s.sums.get(number)
	if sum == sumNone || sum == sumUnverified {
		return nil
	}
	buf := device.AlignedBuffer(align, align)
	off := tail &^ int64(align-1)
	n, err := s.file.ReadAt(buf, off)
	if err != nil && !s.endsAt(off+int64(n), err) {
		return wrap(err)
	}
	at := int(number*sumUnit - off)
	if n < at+sumUnit {
		return nil // the file ends before
	}
	block := buf[at : at+sumUnit]
	if !grown(block, sum, int(tail%sumUnit)) {
		return nil
	}
	now := sumOf(block)
	clear(block[tail%sumUnit:])
	s.accepted.Store(&acceptedBlock{number: number, now: now, stored: sumOf(block)})
	s.sums.set(number, now)
	return nil
}

// acceptedBlock is the block in which the log ended at Start, until it is written again. It
// may have bytes beyond the tail that the log will not write again. Reads use the sum of
// the block as it is (now); the next Start uses the sum of its bytes below the tail followed
// by zeros (stored).
type acceptedBlock struct {
	number      int64
	now, stored uint64
}
