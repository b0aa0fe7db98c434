package ssdtier

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redykv/redykv/device"
)

// segment is one file of the log. The file may be closed, by truncation, while
// others read it: os.File lets them finish or tells them so.
type segment struct {
	number int64
	file   *os.File
	dirty  atomic.Bool // written since the last Sync
}

const (
	segmentSuffix = ".seg"
	segmentDigits = 12
)

func segmentName(number int64) string {
	return fmt.Sprintf("%0*d%s", segmentDigits, number, segmentSuffix)
}

// parseSegmentName is the inverse of segmentName.
func parseSegmentName(name string) (int64, bool) {
	number, err := strconv.ParseInt(strings.TrimSuffix(name, segmentSuffix), 10, 64)
	return number, err == nil && number >= 0 && name == segmentName(number)
}

// cut shortens the file to n bytes if it is longer.
func (s *segment) cut(n int64) error {
	info, err := s.file.Stat()
	if err == nil && info.Size() > n {
		err = s.file.Truncate(n)
		s.dirty.Store(true)
	}
	if err != nil {
		return fmt.Errorf("ssdtier: %w", err)
	}
	return nil
}

// segmentTable finds segments by number, without a lock. It is replaced, never
// changed; Device.mu is held by whoever replaces it.
type segmentTable struct {
	byNumber atomic.Pointer[map[int64]*segment]
}

func (t *segmentTable) get(number int64) *segment {
	if m := t.byNumber.Load(); m != nil {
		return (*m)[number]
	}
	return nil
}

// all returns the segments in order.
func (t *segmentTable) all() []*segment {
	m := t.byNumber.Load()
	if m == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(*m), func(a, b *segment) int { return int(a.number - b.number) })
}

// change replaces the table by a copy that do was applied to.
func (t *segmentTable) change(do func(map[int64]*segment)) {
	next := make(map[int64]*segment)
	if m := t.byNumber.Load(); m != nil {
		maps.Copy(next, *m)
	}
	do(next)
	t.byNumber.Store(&next)
}

// closeAll closes the files; what was to be durable has been synced.
func (t *segmentTable) closeAll() {
	for _, s := range t.all() {
		_ = s.file.Close()
	}
	t.byNumber.Store(nil)
}

// openSegments opens the segments in the directory, removes those that Begin
// has passed, and what an interrupted replaceFile left.
func (d *Device) openSegments() error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return fmt.Errorf("ssdtier: %w", err)
	}
	for _, e := range entries {
		number, ok := parseSegmentName(e.Name())
		switch {
		case strings.HasSuffix(e.Name(), tempSuffix), ok && number < d.begin.Load()/d.opts.SegmentSize:
			if err := os.Remove(d.path(e.Name())); err != nil {
				return fmt.Errorf("ssdtier: %w", err)
			}
		case ok:
			if _, err := d.openSegment(number, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// openSegment opens a segment's file, with os.O_CREATE in flags if it is new,
// and enters it in the table.
func (d *Device) openSegment(number int64, flags int) (*segment, error) {
	path := d.path(segmentName(number))
	f, err := os.OpenFile(path, os.O_RDWR|flags|d.directFlag(), 0o666)
	if err != nil {
		return nil, fmt.Errorf("ssdtier: %w", err)
	}
	s := &segment{number: number, file: f}
	d.segments.change(func(m map[int64]*segment) { m[number] = s })
	return s, nil
}

// segmentToWrite returns the segment of that number, making it if need be, or
// nil if it lies below Begin.
func (d *Device) segmentToWrite(number int64) (*segment, error) {
	if s := d.segments.get(number); s != nil {
		return s, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, device.ErrClosed
	}
	if number < d.begin.Load()/d.opts.SegmentSize {
		return nil, nil
	}
	if s := d.segments.get(number); s != nil {
		return s, nil
	}
	d.newFiles = true
	return d.openSegment(number, os.O_CREATE)
}

// removeSegments deletes the segments that which says. The caller holds mu.
func (d *Device) removeSegments(which func(*segment) bool) error {
	var errs []error
	for _, s := range d.segments.all() {
		if !which(s) {
			continue
		}
		d.segments.change(func(m map[int64]*segment) { delete(m, s.number) })
		_ = s.file.Close() // its bytes are wanted no longer
		if err := os.Remove(s.file.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("ssdtier: %w", err))
		}
	}
	return errors.Join(errs...)
}

// readAt fills buf, whole blocks inside one segment, from addr. It is content
// with the first need bytes: the file may end within the last block wanted.
func (d *Device) readAt(buf []byte, addr int64, need int) error {
	number, off := addr/d.opts.SegmentSize, addr%d.opts.SegmentSize
	s := d.segments.get(number)
	if s == nil {
		return fmt.Errorf("%d bytes at %d: no segment %s: %w", len(buf), addr, d.path(segmentName(number)), device.ErrNotHeld)
	}
	n, err := s.file.ReadAt(buf, off)
	switch {
	case n >= need:
		return nil
	case errors.Is(err, os.ErrClosed):
		return fmt.Errorf("%d bytes at %d: %s is gone: %w", len(buf), addr, s.file.Name(), device.ErrNotHeld)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%d bytes at %d: %s ends at offset %d: %w",
			len(buf), addr, s.file.Name(), off+int64(n), device.ErrNotHeld)
	}
	return fmt.Errorf("ssdtier: read of %d bytes at %d: %w", len(buf), addr, err)
}

// writeAt stores buf, whole blocks inside one segment, at addr. What lies in a
// segment below Begin is dropped.
func (d *Device) writeAt(buf []byte, addr int64) error {
	number, off := addr/d.opts.SegmentSize, addr%d.opts.SegmentSize
	s, err := d.segmentToWrite(number)
	if s == nil {
		return err
	}
	_, err = s.file.WriteAt(buf, off)
	s.dirty.Store(true)
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("ssdtier: write of %d bytes at %d: %w", len(buf), addr, err)
	}
	return nil
}
