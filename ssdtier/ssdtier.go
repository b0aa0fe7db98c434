// Package ssdtier is a log on a local SSD: a device.Device that keeps its bytes
// in a directory of segment files, and reads and writes them past the page
// cache.
//
//	data/
//	  FORMAT             version of the layout and size of a segment
//	  LOCK               held by the process that has the directory open
//	  BEGIN              lowest address of the log
//	  000000000000.seg   segment 0: addresses 0 to SegmentSize
//	  000000000001.seg   segment 1, …
//	  meta.NAME          the metadata of that name
//	  object.NAME        the object of that name
//	  *.tmp              what is being made; removed when the directory is opened
//
// [Open] makes the directory or opens it again. A [Device] finds the block size
// of the file system by itself; that is its Alignment. Where files cannot be
// opened for direct I/O it uses ordinary files, says so once in the log, and
// takes writes of any bytes.
//
// Caveats worth knowing:
//   - A directory belongs to one process at a time: [ErrLocked].
//   - A read takes the blocks around what was asked for; a small one costs as
//     much as a block.
//   - Space comes back a segment at a time, and files are as long as what was
//     written to them.
//   - After a failed Sync it is not known what the disk has, and every later
//     Sync fails as well: open the directory anew.
package ssdtier

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/device"
)

// Errors that a caller can act on, wrapped with the directory or the file.
var (
	// ErrLocked says that another process, or this one, has the directory open.
	ErrLocked = errors.New("ssdtier: directory is in use")
	// ErrFormat says that the directory was written by a version that this one
	// cannot read, with other options, or that files of it are damaged or gone.
	ErrFormat = errors.New("ssdtier: unknown format")
)

// Device is a log in a directory. It implements device.Device.
type Device struct {
	dir     string
	opts    Options
	lock    *os.File
	direct  bool
	block   int // unit of reads and writes in bytes; 1 without direct I/O
	engine  engine
	buffers bufferPool

	// begin is raised before a segment below it is removed; a read looks at it
	// before, and a missing file says the rest.
	begin    atomic.Int64
	segments segmentTable

	mu       sync.Mutex // guards what follows, and changes of files' names
	newFiles bool       // segments were created since the last Sync
	syncErr  error      // the Sync that failed
	closed   bool
	// objectsMade tells the temporary files of objects apart.
	objectsMade int
}

// Open opens the log in dir with the default options, making the directory if
// it is not there.
func Open(dir string) (*Device, error) { return OpenWith(dir, Options{}) }

// OpenWith is Open with options.
func OpenWith(dir string, opts Options) (_ *Device, err error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("ssdtier: %w", err)
	}
	d := &Device{dir: dir, opts: opts}
	if d.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.segments.closeAll()
			_ = d.lock.Close() // nothing was written to it
		}
	}()
	if err := d.loadFormat(); err != nil {
		return nil, err
	}
	if err := d.findBlock(); err != nil {
		return nil, err
	}
	if err := d.loadBegin(); err != nil {
		return nil, err
	}
	if err := d.openSegments(); err != nil {
		return nil, err
	}
	d.engine = newPool(opts.Workers)
	return d, nil
}

// Dir is the directory that the log is in.
func (d *Device) Dir() string { return d.dir }

// Direct says whether reads and writes bypass the page cache.
func (d *Device) Direct() bool { return d.direct }

// Alignment implements device.Device: the block size.
func (d *Device) Alignment() int { return d.block }

// Begin implements device.Device.
func (d *Device) Begin() int64 { return d.begin.Load() }

// Start implements device.Device. Segments at and above tail are removed, and
// what the last one has beyond tail's block is cut off.
func (d *Device) Start(tail int64) error {
	if tail < 0 {
		return fmt.Errorf("ssdtier: %s: start at address %d", d.dir, tail)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return device.ErrClosed
	}
	if d.begin.Load() > tail {
		if err := d.storeBegin(tail); err != nil {
			return err
		}
		d.begin.Store(tail)
	}
	size := d.opts.SegmentSize
	last := d.segments.get(tail / size)
	if tail%size == 0 {
		last = nil
	}
	err := d.removeSegments(func(s *segment) bool { return s.number*size >= tail })
	if last != nil {
		err = errors.Join(err, last.cut(alignUp(tail%size, int64(d.block))))
	}
	return errors.Join(err, syncDir(d.dir))
}

// Truncate implements device.Device. Begin is durable before any space is given
// back.
func (d *Device) Truncate(begin int64) error {
	if begin < 0 {
		return fmt.Errorf("ssdtier: %s: truncate to address %d", d.dir, begin)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return device.ErrClosed
	}
	if begin <= d.begin.Load() {
		return nil
	}
	if err := d.storeBegin(begin); err != nil {
		return err
	}
	d.begin.Store(begin)
	size := d.opts.SegmentSize
	return d.removeSegments(func(s *segment) bool { return s.number < begin/size })
}

// Sync implements device.Device.
func (d *Device) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return device.ErrClosed
	}
	if d.syncErr != nil {
		return d.syncErr
	}
	d.syncErr = d.syncFiles()
	return d.syncErr
}

func (d *Device) syncFiles() error {
	for _, s := range d.segments.all() {
		// Cleared first: a write that ends during the fsync is the next one's.
		if s.dirty.Swap(false) {
			if err := s.file.Sync(); err != nil {
				return fmt.Errorf("ssdtier: sync: %w", err)
			}
		}
	}
	if d.newFiles {
		if err := syncDir(d.dir); err != nil {
			return err
		}
		d.newFiles = false
	}
	return nil
}

// Close implements device.Device.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock() // a worker may be about to make a segment
	d.engine.close()
	d.segments.closeAll()
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("ssdtier: unlock: %w", err)
	}
	return nil
}

// path is the path of a file in the directory.
func (d *Device) path(name string) string { return filepath.Join(d.dir, name) }

// alignUp rounds n up to a multiple of align, a power of two.
func alignUp(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }
