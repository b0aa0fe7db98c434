package ssdtier

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/redykv/redykv/device"
)

// Reader reads a directory that is not open, without changing it, to inspect damage. It
// belongs to one goroutine.
type Reader struct {
	dir         string
	version     int
	segmentSize int64
	begin       int64
	lock        *dirLock
	journal     *journalState // nil if there is none
	segment     *os.File      // the last segment read, or nil
	number      int64         // of segment
}

// NewReader opens a directory for reading. While it is open no Device can open the directory,
// and while a Device has it open NewReader fails, with ErrLocked.
func NewReader(dir string) (*Reader, error) {
	lock, err := lockForReading(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{dir: dir, lock: lock}
	if err := r.load(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// load reads the small files.
func (r *Reader) load() (err error) {
	if r.version, r.segmentSize, err = readFormat(filepath.Join(r.dir, formatName)); err != nil {
		return err
	}
	if r.begin, err = readBegin(filepath.Join(r.dir, beginName), r.version); err != nil {
		return err
	}
	r.journal, err = readJournal(filepath.Join(r.dir, journalName))
	return err
}

// Begin is the lowest address of the log.
func (r *Reader) Begin() int64 { return r.begin }

// ReadAt reads the log from an address. Unlike [Inspect] it does not verify checksums of
// segments. An error names the segment.
func (r *Reader) ReadAt(p []byte, addr int64) (n int, err error) {
	for n < len(p) {
		number, off := addr/r.segmentSize, addr%r.segmentSize
		if err := r.open(number); err != nil {
			return n, err
		}
		part := p[n:min(len(p), n+int(r.segmentSize-off))]
		k, err := r.segment.ReadAt(part, off)
		k = r.journal.overlay(part, k, addr)
		n, addr = n+k, addr+int64(k)
		switch {
		case k == len(part):
		case errors.Is(err, io.EOF):
			return n, fmt.Errorf("ssdtier: %s is cut short", r.segment.Name())
		default:
			return n, wrap(err)
		}
	}
	return n, nil
}

// LostSums calls report for each part of the log between two addresses for which a file of
// checksums is too short or empty. All synced bytes have a checksum, and a Device does not read blocks
// without one. So a caller that knows the synced tail can determine what was lost. [Inspect]
// reports other damage of files of checksums, and missing ones.
func (r *Reader) LostSums(from, until int64, report func(from, until int64, err error)) {
	for from < until {
		number := from / r.segmentSize
		start := number * r.segmentSize
		end := min(until, start+r.segmentSize)
		if sums, ok := r.sumsEnd(number); ok && start+sums < end {
			report(max(from, start+sums), end, fmt.Errorf("ssdtier: %s ends before the checksums of this range",
				filepath.Join(r.dir, sumName(number))))
		}
		from = end
	}
}

// sumsEnd is the offset in a segment where its checksums end.
func (r *Reader) sumsEnd(number int64) (end int64, ok bool) {
	data, err := readStart(filepath.Join(r.dir, sumName(number)), sumsEnd(r.segmentSize))
	if err != nil {
		return 0, false
	}
	t := newSumTable(r.segmentSize)
	// Inspect accepts a file that was never synced for the newest segment.
	if !neverSynced(data) && parseSums(data, number, t) != nil {
		return 0, false
	}
	r.journal.setSums(t, number, r.segmentSize)
	return (t.last() + 1) * sumUnit, true
}

// open opens a segment in place of the open one.
func (r *Reader) open(number int64) error {
	if r.segment != nil && r.number == number {
		return nil
	}
	r.closeSegment()
	f, err := os.Open(filepath.Join(r.dir, segmentName(number)))
	if err != nil {
		return wrap(err)
	}
	r.segment, r.number = f, number
	return nil
}

func (r *Reader) closeSegment() {
	if r.segment != nil {
		_ = r.segment.Close() // it was only read
		r.segment = nil
	}
}

// ReadMeta is like [Device.ReadMeta].
func (r *Reader) ReadMeta(name string) ([]byte, error) {
	if err := device.CheckName(name); err != nil {
		return nil, fmt.Errorf("ssdtier: metadata: %w", err)
	}
	if r.journal != nil {
		if data, ok := r.journal.metas[name]; ok {
			return data, nil
		}
	}
	return readMeta(filepath.Join(r.dir, metaPrefix+name), r.version)
}

// OpenObject is like [Device.OpenObject].
func (r *Reader) OpenObject(name string) (device.Object, error) {
	if err := device.CheckName(name); err != nil {
		return nil, fmt.Errorf("ssdtier: object: %w", err)
	}
	o, err := openObject(filepath.Join(r.dir, objectPrefix+name))
	if err != nil {
		return nil, err // not a nil *object
	}
	return o, nil
}

// ListObjects is [Device.ListObjects].
func (r *Reader) ListObjects() ([]string, error) { return listObjects(r.dir) }

// listObjects returns the names of the objects in a directory, in order.
func listObjects(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // in order
	if err != nil {
		return nil, wrap(err)
	}
	var names []string
	for _, e := range entries {
		if what, _ := classify(e.Name()); what == objectFile {
			names = append(names, strings.TrimPrefix(e.Name(), objectPrefix))
		}
	}
	return names, nil
}

// Close releases the directory.
func (r *Reader) Close() error {
	r.closeSegment()
	return r.lock.close()
}
