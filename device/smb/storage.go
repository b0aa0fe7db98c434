package smb

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/internal/progress"
)

// segment returns the segment of that number, or nil.
func (d *Device) segment(number int64) *file { return (*d.segments.Load())[number] }

// changeSegments replaces the table by a copy that do has changed.
func (d *Device) changeSegments(do func(map[int64]*file)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := maps.Clone(*d.segments.Load())
	do(next)
	d.segments.Store(&next)
}

// segmentToWrite returns the segment of that number, or nil if it lies below Begin. It adds
// the segment if necessary.
func (d *Device) segmentToWrite(number int64) *file {
	if f := d.segment(number); f != nil {
		return f
	}
	var f *file
	d.changeSegments(func(m map[int64]*file) {
		if f = m[number]; f == nil && number >= d.begin.Load()/d.opts.SegmentSize {
			f = &file{name: segmentName(number)}
			m[number] = f
		}
	})
	return f
}

// removeSegments removes the segments for which which returns true. The caller holds change.
func (d *Device) removeSegments(which func(number int64) bool) error {
	d.changeSegments(func(m map[int64]*file) {
		for number, f := range m {
			if which(number) {
				f.gone.Store(true)
				d.trash = append(d.trash, f)
				delete(m, number)
			}
		}
	})
	return d.sweep()
}

// sweep removes the files that are gone. A file that the server still has open, for a broken
// connection for example, and all files after ErrDoubt, are left for the next sweep. The
// caller holds change.
func (d *Device) sweep() error {
	var left []*file
	var errs []error
	for _, f := range d.trash {
		for _, s := range d.sessions {
			s.shut(f)
		}
		err := d.ask(true, func(l *link) error { return l.share.Remove(d.path(f.name)) })
		if err == nil || gone(err) {
			continue
		}
		left = append(left, f)
		if !answered(err, statusSharingViolation) && !errors.Is(err, ErrDoubt) {
			errs = append(errs, d.named("remove "+f.name, err))
		}
	}
	d.trash = left
	return errors.Join(errs...)
}

// storage carries out the reads and writes of queues.
type storage struct{ d *Device }

func (s storage) ReadAt(dst []byte, addr int64) error {
	d := s.d
	if begin := d.Begin(); addr < begin {
		return fmt.Errorf("%s: %d bytes at %d, below its begin %d: %w", d.opts.place(), len(dst), addr, begin, device.ErrNotHeld)
	}
	err := d.pieces(dst, addr, func(f *file, piece []byte, off int64) error {
		if f == nil {
			return fmt.Errorf("%s: no segment for %d bytes at %d: %w", d.opts.place(), len(dst), addr, device.ErrNotHeld)
		}
		return d.read(f, piece, off)
	}, d.segment)
	if doubt := d.believe(addr + int64(len(dst))); doubt != nil { // also if the server has been restarted meanwhile
		return d.named(fmt.Sprintf("read of %d bytes at %d", len(dst), addr), doubt)
	}
	return err
}

// WriteAt implements blocking.Storage. A write to a segment below Begin is dropped.
func (s storage) WriteAt(src []byte, addr int64) error {
	d := s.d
	span := progress.Span{From: addr, To: addr + int64(len(src))}
	d.mu.Lock()
	d.writes.Begin(span)
	d.mu.Unlock()
	err := d.pieces(src, addr, func(f *file, piece []byte, off int64) error {
		if f == nil {
			return nil
		}
		return d.write(f, piece, off)
	}, d.segmentToWrite)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes.End(span, err == nil)
	return err
}

// pieces calls do for the parts of buf that lie in one segment each.
func (d *Device) pieces(buf []byte, addr int64, do func(f *file, piece []byte, off int64) error, find func(int64) *file) error {
	if addr > math.MaxInt64-d.opts.SegmentSize-int64(len(buf)) {
		return fmt.Errorf("smb: %s: %d bytes at %d: out of range", d.opts.place(), len(buf), addr)
	}
	size := d.opts.SegmentSize
	for len(buf) > 0 {
		off := addr % size
		n := int(min(int64(len(buf)), size-off))
		if err := do(find(addr/size), buf[:n], off); err != nil {
			return err
		}
		buf, addr = buf[n:], addr+int64(n)
	}
	return nil
}

// read fills dst from an offset in a file.
func (d *Device) read(f *file, dst []byte, off int64) error {
	err := d.askFile(false, f, 0, func(open *smb2.File) error {
		n, err := open.ReadAt(dst, off)
		if n < len(dst) && (err == nil || errors.Is(err, io.EOF)) {
			return fmt.Errorf("%s ends at offset %d: %w", f.name, off+int64(n), device.ErrNotHeld)
		}
		return err
	})
	switch {
	case err == nil || !errors.Is(err, os.ErrNotExist):
	case f.gone.Load() || !f.made.Load():
		err = fmt.Errorf("%s: %w", f.name, device.ErrNotHeld)
	default:
		err = fmt.Errorf("%s is missing, restore it: %w", f.name, device.ErrCorrupt)
	}
	if err == nil {
		return nil
	}
	return d.named(fmt.Sprintf("read of %d bytes", len(dst)), err)
}

// write stores src at an offset in a file. The file counts as not durable before the write,
// and again after it, because a Sync in between may not cover the write.
func (d *Device) write(f *file, src []byte, off int64) error {
	flags := 0
	if !f.made.Load() {
		flags = os.O_CREATE
	}
	err := d.ask(true, func(l *link) error {
		d.markDirty(f)
		return l.use(d, f, flags, writing(src, off))
	})
	d.markDirty(f)
	if err == nil {
		if !f.made.Swap(true) {
			d.newFiles.Store(true)
		}
		return nil
	}
	if f.gone.Load() && errors.Is(err, os.ErrNotExist) {
		return nil // Begin has passed it
	}
	return marked(d.named(fmt.Sprintf("write of %d bytes at offset %d of %s", len(src), off, f.name), err))
}

// writing returns the request that writes src at an offset in a file.
func writing(src []byte, off int64) func(*smb2.File) error {
	return func(open *smb2.File) error {
		_, err := open.WriteAt(src, off)
		return err
	}
}

// markDirty records that a file is not durable.
func (d *Device) markDirty(f *file) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty[f] = struct{}{}
}
