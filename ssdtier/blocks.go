package ssdtier

import (
	"errors"
	"fmt"
	"io"

	"github.com/redykv/redykv/device"
)

// readAt fills buf, whole blocks or sectors inside one segment, from addr. It is
// content with the first need bytes: a file that was written without sums may end
// within the last block wanted.
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

// noSegment is the error of what lies in a segment that is not there. Its sums
// tell whether it should be. The caller holds mu.
func (d *Device) noSegment(number int64) error {
	path := d.path(segmentName(number))
	if d.summed[number] && d.segments.get(number) == nil {
		return fmt.Errorf("%s is missing, its checksums are there: put it back: %w", path, device.ErrCorrupt)
	}
	all := d.segments.all()
	if n := len(all); n > 0 && number < all[n-1].number && number >= d.begin.Load()/d.opts.SegmentSize {
		return fmt.Errorf("no segment %s, nor its checksums, though later segments are there: put them back: %w", path, device.ErrNotHeld)
	}
	return fmt.Errorf("no segment %s: %w", path, device.ErrNotHeld)
}

// read fills buf from an offset in the file, and compares whole blocks with their sums.
func (s *segment) read(buf []byte, off int64, need int) error {
	n, err := s.file.ReadAt(buf, off)
	if err != nil && !s.endsAt(off+int64(n), err) {
		return fmt.Errorf("ssdtier: %w", err)
	}
	return s.verify(buf, n, off, need)
}

// verify compares the blocks read into buf from an offset, of which the file had n
// bytes, with their sums, as far as they are needed. Of a block that is there in part
// it sees only whether it was written.
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

// checkBlock compares what the file has of the block at an offset, or of want bytes of
// one, with its sum.
func (s *segment) checkBlock(block []byte, want int, off int64, sum uint64) error {
	switch {
	case sum == sumNone && (len(block) == 0 || off >= s.written.Load()):
		return fmt.Errorf("%s: nothing was written to the block at offset %d: %w", s.file.Name(), off, device.ErrNotHeld)
	case sum == sumNone && s.sumsErr != nil:
		return fmt.Errorf("%s: no checksum of the block at offset %d: %w: %w", s.file.Name(), off, s.sumsErr, device.ErrCorrupt)
	case sum == sumNone:
		return fmt.Errorf("%s: the block at offset %d was never written whole, or its checksum is lost: %w",
			s.file.Name(), off, device.ErrCorrupt)
	case len(block) < want:
		return fmt.Errorf("%s is cut short: it ends at offset %d: %w", s.file.Name(), off+int64(len(block)), device.ErrCorrupt)
	case want == sumUnit && sumOf(block) != sum:
		return fmt.Errorf("%s: the block at offset %d is not what was written, by its checksum: %w",
			s.file.Name(), off, device.ErrCorrupt)
	}
	return nil
}

// endsAt reports whether a read stopped at the end of the file. Direct I/O does not
// always call that io.EOF: where the file ends inside a block, the next read is
// not aligned.
func (s *segment) endsAt(off int64, err error) bool {
	if errors.Is(err, io.EOF) {
		return true
	}
	info, err := s.file.Stat()
	return err == nil && info.Size() <= off
}

// writeAt stores buf, whole blocks inside one segment, at addr, and sets their
// sums. What lies in a segment below Begin is dropped. Of blocks whose write has
// failed the sums stay: either they still hold, or reads say so.
func (d *Device) writeAt(buf []byte, addr int64) error {
	number, off := addr/d.opts.SegmentSize, addr%d.opts.SegmentSize
	s, err := d.segmentToWrite(number)
	if s == nil || !s.acquire() {
		return err
	}
	defer s.release()
	whole := span{off, off + int64(len(buf))}
	d.reserve(s, whole.to)
	s.rewrites.beginWrite(whole)
	defer s.rewrites.endWrite(whole)
	err = d.withSpace(func() error {
		_, err := s.file.WriteAt(buf, off)
		return err
	})
	if err == nil {
		s.wrote(buf, off)
	}
	s.dirty.Store(true)
	if err != nil {
		return fmt.Errorf("ssdtier: write of %d bytes at %d: %w", len(buf), addr, err)
	}
	return nil
}

// wrote sets the sums of buf, which was written to an offset.
func (s *segment) wrote(buf []byte, off int64) {
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

// accept takes the block of sumUnit bytes that the log's tail ends in, at an
// offset in the segment, as the file has it, if it is the one of its sum or that
// one grown. If not, reads will say so. The device reads align bytes at least.
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
		return fmt.Errorf("ssdtier: %w", err)
	}
	at := int(number*sumUnit - off)
	if n < at+sumUnit {
		return nil // nothing there to accept
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

// acceptedBlock is the block that the log's tail ended in at Start, until it is
// written again. It may have bytes beyond the tail which the log is not going to
// write there. For reads it has the sum of what it is; for the next Start, that
// of what lies below the tail, and zeros, whatever is written behind that
// meanwhile.
type acceptedBlock struct {
	number      int64
	now, stored uint64
}
