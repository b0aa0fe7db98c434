package ssdtier

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/device"
)

// segment is one file of the log. It may be truncated while it is read: the file is closed
// when the last user releases it.
type segment struct {
	d      *Device
	number int64
	file   *os.File
	fd     int          // of file, while the segment is acquired
	users  atomic.Int64 // 1 for the table, 1 for each read and write; 0: closed
	dirty  atomic.Bool  // written since the last Sync
	flush  flush
	sums   *sumTable
	kept   bool // the file becomes a spare when it is closed; set before it leaves the table

	reserved reservation
	// written is an offset, a multiple of sumUnit: every block below it was written, and
	// none at or above it.
	written atomic.Int64

	rewrites rewrites
	accepted atomic.Pointer[acceptedBlock]

	sumPath string
	sumsErr error // of the file of sums, if it could not be read
	newSums bool  // the file of sums has to be created; guarded by Device.mu
	headed  bool  // the header of the file of sums is durable; guarded by Device.mu
}

// flush is what makes a segment's file durable. The system reports what it could not write to one
// fsync only, so that they come one after the other, and the error stays.
type flush struct {
	mu     sync.Mutex
	failed error
}

// sync makes durable what was written to the file.
func (s *segment) sync() error {
	s.flush.mu.Lock()
	defer s.flush.mu.Unlock()
	if s.flush.failed == nil {
		s.flush.failed = s.d.syncFile(s.file)
	}
	return s.flush.failed
}

// acquire keeps the file open until release. It returns false if the file is closed.
func (s *segment) acquire() bool {
	for n := s.users.Load(); n > 0; n = s.users.Load() {
		if s.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// release is called once for each acquire, and once after the segment has left the table.
// An error of closing does not matter: what has to be durable was synced.
func (s *segment) release() {
	if s.users.Add(-1) != 0 {
		return
	}
	_ = s.file.Close()
	if s.kept {
		s.d.spares.ready(s.file.Name())
	}
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

// cut truncates the file to n bytes if it is longer. No write to it is pending.
func (s *segment) cut(n int64) error {
	info, err := s.file.Stat()
	s.reserved.end.Store(min(s.reserved.end.Load(), n))
	if err == nil && info.Size() > n {
		err = s.file.Truncate(n)
		s.dirty.Store(true)
	}
	return wrap(err)
}

// checkNames checks that the segment's file still has its name. If the file of its sums was
// removed, it is created again. The caller holds Device.mu.
func (s *segment) checkNames() error {
	if err := checkName(s.file); err != nil {
		return err
	}
	if _, err := os.Stat(s.sumPath); errors.Is(err, fs.ErrNotExist) && !s.newSums {
		s.d.opts.Logger.Warn("a file of checksums was removed while in use, it is created again", "file", s.sumPath)
		s.newSums = true
		s.sums.touch()
		s.dirty.Store(true)
	}
	return nil
}

// checkName checks that an open file still has its name.
func checkName(f *os.File) error {
	open, err := f.Stat()
	if err != nil {
		return fmt.Errorf("ssdtier: sync: %w", device.MarkTransient(err))
	}
	named, err := os.Stat(f.Name())
	switch {
	case err == nil && !os.SameFile(open, named):
		err = errors.New("another file has this name")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("ssdtier: sync: %w", device.MarkTransient(err))
	}
	if err != nil {
		return fmt.Errorf("ssdtier: sync: %s was removed or replaced while in use, its bytes are lost when this process ends: %w: %w",
			f.Name(), err, device.ErrCorrupt)
	}
	return nil
}

// segmentTable finds segments by number, without a lock. The map is replaced, never changed,
// under Device.mu.
type segmentTable struct {
	byNumber atomic.Pointer[map[int64]*segment]
}

func (t *segmentTable) get(number int64) *segment { return (*t.byNumber.Load())[number] }

// all returns the segments in order.
func (t *segmentTable) all() []*segment {
	return slices.SortedFunc(maps.Values(*t.byNumber.Load()), func(a, b *segment) int { return int(a.number - b.number) })
}

// change replaces the map by a copy that do has changed.
func (t *segmentTable) change(do func(map[int64]*segment)) {
	next := maps.Clone(*t.byNumber.Load())
	do(next)
	t.byNumber.Store(&next)
}

// closeAll empties the table.
func (t *segmentTable) closeAll() {
	for _, s := range t.all() {
		s.release()
	}
	t.byNumber.Store(&map[int64]*segment{})
}

// openSegments opens the segments in the directory, and removes those below Begin, unfinished
// files, and the sums of a segment whose process ended before it made the segment.
func (d *Device) openSegments() error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return wrap(err)
	}
	first := d.begin.Load() / d.opts.SegmentSize
	for _, e := range entries {
		what, number := classify(e.Name())
		log := what == segmentFile || what == sumFile
		switch {
		case what == leftover, log && number < first:
			if err := os.Remove(d.path(e.Name())); err != nil {
				return wrap(err)
			}
		case what == sumFile:
			d.summed[number] = true
		case what == segmentFile:
			s, err := d.openSegment(number, 0)
			if err != nil {
				return err
			}
			if err := s.loadSums(); err != nil {
				return err
			}
		}
	}
	newest := slices.Max(slices.AppendSeq([]int64{-1}, maps.Keys(d.summed)))
	if newest < 0 || slices.ContainsFunc(d.segments.all(), func(s *segment) bool { return s.number >= newest }) {
		return nil
	}
	path := d.path(sumName(newest))
	data, err := readStart(path, sumsEnd(d.opts.SegmentSize))
	if err == nil && noSums(data, newest) {
		delete(d.summed, newest)
		err = os.Remove(path)
	}
	return wrap(err)
}

// openSegment opens a segment's file, with os.O_CREATE in flags if it is new,
// and adds it to the table.
func (d *Device) openSegment(number int64, flags int) (*segment, error) {
	path := d.path(segmentName(number))
	f, err := openFile(path, os.O_RDWR|flags|d.directFlag, 0o666)
	if err != nil {
		return nil, wrap(err)
	}
	s := &segment{
		d: d, number: number, file: f, fd: int(f.Fd()),
		sums: newSumTable(d.opts.SegmentSize), sumPath: d.path(sumName(number)),
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("ssdtier: %w", errors.Join(err, f.Close()))
	}
	s.reserved.end.Store(info.Size())
	if flags&os.O_CREATE == 0 {
		s.written.Store(alignUp(info.Size(), sumUnit)) // until Start knows better
	}
	s.users.Store(1)
	d.segments.change(func(m map[int64]*segment) { m[number] = s })
	return s, nil
}

// segmentToWrite returns the segment of that number, or nil if it lies below Begin. It
// creates the segment if necessary.
func (d *Device) segmentToWrite(number int64) (*segment, error) {
	if s := d.segments.get(number); s != nil {
		return s, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	if number < d.begin.Load()/d.opts.SegmentSize {
		return nil, nil
	}
	if s := d.segments.get(number); s != nil {
		return s, nil
	}
	d.newFiles = true
	if err := d.withSpace(func() error { return d.makeSums(number) }); err != nil {
		return nil, fmt.Errorf("ssdtier: checksums: %w", err)
	}
	d.spares.give(d.path(segmentName(number)))
	var s *segment
	err := d.withSpace(func() (err error) {
		s, err = d.openSegment(number, os.O_CREATE)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.reserved.end.Store(0) // a spare file has space, but its sums have none
	return s, nil
}

// isWhole reports whether the file has a segment's size.
func (s *segment) isWhole() bool {
	info, err := s.file.Stat()
	return err == nil && info.Size() == s.d.opts.SegmentSize
}

// removeSegments removes the segments for which which returns true, and their sums. What it could
// not remove stays, for the next call. The caller holds mu. It releases the segments, which
// frees their space: without mu if commits go on, so that they do not wait for it.
func (d *Device) removeSegments(which func(number int64) bool) (removed []*segment, err error) {
	var errs []error
	remove := func(path string) bool {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			errs = append(errs, wrap(err))
		}
		return err == nil
	}
	for _, s := range d.segments.all() {
		if !which(s.number) {
			continue
		}
		s.kept = s.isWhole() && d.spares.keep(s.file.Name())
		if !s.kept && !remove(s.file.Name()) {
			continue
		}
		d.segments.change(func(m map[int64]*segment) { delete(m, s.number) })
		removed = append(removed, s)
		d.summed[s.number] = true
	}
	for number := range d.summed {
		if which(number) && d.segments.get(number) == nil && remove(d.path(sumName(number))) {
			delete(d.summed, number)
		}
	}
	return removed, errors.Join(errs...)
}

// released returns err after it has released segments.
func released(segments []*segment, err error) error {
	for _, s := range segments {
		s.release()
	}
	return err
}
