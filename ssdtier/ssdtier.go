// Package ssdtier is a log on a local SSD: a device.Device that stores its bytes in a
// directory of segment files, and reads and writes them by direct I/O.
//
//	data/
//	  FORMAT             version of the layout and size of a segment
//	  LOCK               held by the process that has the directory open
//	  BEGIN              lowest address of the log
//	  000000000000.seg   segment 0: addresses 0 to SegmentSize
//	  000000000000.sum   a checksum for each 4 KiB of it
//	  000000000001.seg   segment 1, …
//	  meta.NAME          the metadata of that name, unless the journal has it
//	  JOURNAL            commits that are not in other files yet; made by Start, 4 MiB, and removed by
//	                     Close if the disk has space for those
//	  object.NAME        the object of that name
//	  meta.*.tmp, …      unfinished files; removed when the directory is opened
//
// [Open] creates the directory or opens it again. The Alignment of a [Device] is the block
// size of the file system, at least 4 KiB. If files cannot be opened for direct I/O, it uses
// ordinary files and logs that once. Reads and writes go through io_uring if the system has
// it, and otherwise through a pool of threads: see [Engine].
//
// All stored data has checksums, which are verified before the data is returned: an error
// that wraps device.ErrCorrupt names the file and the place. After a crash this holds for
// everything that was synced. [Options.Verify] can turn verification off for reads without a
// whole block. Data from versions without checksums is not verified. Opening such a directory
// adds checksums to new data; older versions can then no longer open it. If checksum files
// are lost, replace the content of FORMAT by the one line "redykv ssdtier 1 segment SIZE";
// the directory is then read without verification. [Inspect] checks a whole directory,
// offline.
//
// Caveats:
//   - Two pending writes must not overlap in a block.
//   - A directory can be open in one process at a time; another gets [ErrLocked].
//   - A read takes the blocks around its range, so a small one costs as much as a block,
//     unless [Options.Verify] excludes it. Checksums take 2 MiB of memory for a GiB of log.
//   - Space is released a segment at a time, and allocated ahead: [Options.Preallocate],
//     [Options.Recycle].
//   - A damaged last record of the journal looks like one that a crash has torn, so that the
//     commit before it counts. Damage of any other is an error of Open.
//   - With [Device.UseJournal] the last commits, of about a second, are in memory outside the directory:
//     after a crash, they are fetched from there before the device is used.
//   - An older version of the journal, or of the metadata in its file, cannot be told from the newest:
//     the metadata is that of then.
//   - After a sync of a segment or of the directory failed, in whichever call, the state of the disk
//     is unknown: every later Sync, commit and Close has the error. Open the directory again. What
//     found no space, but for the blocks of a segment, can be repeated.
package ssdtier

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/dirs"
	"github.com/redykv/redykv/internal/queue"
)

// Errors that a caller can act on, wrapped with the directory or the file.
var (
	// ErrLocked means that another process, or this one, has the directory open.
	ErrLocked = errors.New("ssdtier: directory is in use")
	// ErrFormat means that this version cannot read the directory: another version or
	// other options wrote it, or files are damaged or missing.
	ErrFormat = errors.New("ssdtier: unknown format")
)

// openFile opens the files that are written to. Tests replace it.
var openFile = os.OpenFile

// Device is a log in a directory. It implements device.Device.
type Device struct {
	dir  string
	opts Options
	lock *dirLock
	// directFlag is the flag for opening segments and objects: openDirect, or 0.
	directFlag int
	block      int  // unit of writes and of reads that are verified, in bytes; a multiple of sumUnit
	sector     int  // unit of reads that are not verified
	rings      bool // each queue has a ring
	// ringless: a queue could not have a ring, and that was logged.
	ringless  atomic.Bool
	sickRings seldom // log of rings that failed
	pool      *queue.Pool
	buffers   bufferPool

	// begin is raised before a segment below it is removed. A read compares it first; a
	// segment that is removed during the read is missing then.
	begin    atomic.Int64
	segments segmentTable
	spares   spares
	journal  journal
	// noReserve: segments do not allocate space ahead, by choice or because the file
	// system cannot.
	noReserve atomic.Bool
	closed    atomic.Bool // set under mu
	// syncFile makes a segment's file durable: syncData. Tests replace it.
	syncFile func(*os.File) error

	mu       sync.Mutex     // guards the fields below, and changes of files' names
	version  int            // of FORMAT
	newFiles bool           // segments were created since the last Sync
	syncErr  error          // of the first sync of a segment or of the directory that failed
	summed   map[int64]bool // numbers of the files of sums that Open found
	// companion is the name of the file of this opening's companion.
	companion string
	// objectsMade numbers the temporary files of objects.
	objectsMade int
}

// Open opens the log in dir with the default options, and creates the directory if it does
// not exist.
func Open(dir string) (*Device, error) { return OpenWith(dir, Options{}) }

// OpenWith is Open with options.
func OpenWith(dir string, opts Options) (_ *Device, err error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	if err := dirs.MkdirAll(dir, 0o777); err != nil {
		return nil, wrap(err)
	}
	d := &Device{dir: dir, opts: opts, syncFile: syncData, summed: make(map[int64]bool), companion: newCompanion()}
	d.segments.byNumber.Store(&map[int64]*segment{})
	d.noReserve.Store(opts.Preallocate < 0)
	d.spares.limit = opts.Recycle
	if err := d.chooseEngine(); err != nil {
		return nil, err
	}
	if err := d.checkOwner(); err != nil { // before the lock creates a file
		return nil, err
	}
	if d.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.segments.closeAll()
			_ = d.lock.close() // nothing was written to it
			if d.journal.file != nil {
				_ = d.journal.file.Close() // it is as it was
			}
		}
	}()
	version, err := d.loadFormat()
	if err != nil {
		return nil, err
	}
	d.version = version
	if err := d.findBlock(); err != nil {
		return nil, err
	}
	begin, err := readBegin(d.path(beginName), version)
	if err != nil {
		return nil, err
	}
	d.begin.Store(begin)
	if err := d.openSegments(); err != nil {
		return nil, err
	}
	if err := d.loadJournal(); err != nil {
		return nil, err
	}
	if version == 1 {
		if err := d.upgrade(); err != nil {
			return nil, err
		}
	}
	d.pool = queue.NewPool(opts.Workers)
	return d, nil
}

// Dir is the directory of the log.
func (d *Device) Dir() string { return d.dir }

// Direct reports whether reads and writes bypass the page cache.
func (d *Device) Direct() bool { return d.directFlag != 0 }

// Sector is the unit of direct I/O in bytes; 1 if the page cache is not bypassed.
func (d *Device) Sector() int { return d.sector }

// Engine is the engine in use: EngineUring or EnginePool.
func (d *Device) Engine() Engine {
	if d.rings {
		return EngineUring
	}
	return EnginePool
}

// Alignment implements device.Device: the block size.
func (d *Device) Alignment() int { return d.block }

// Begin implements device.Device.
func (d *Device) Begin() int64 { return d.begin.Load() }

// Start implements device.Device. It removes segments at and above tail, truncates the last
// one after tail's block, and accepts that block if its bytes below tail are the synced
// ones. It removes the companions of earlier processes.
func (d *Device) Start(tail int64) error {
	if tail < 0 {
		return fmt.Errorf("ssdtier: %s: start at address %d, want 0 or more", d.dir, tail)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	if err := cmp.Or(d.lacks(), d.comeHome()); err != nil {
		return err
	}
	// No later opening may restore what is dropped now.
	d.journal.recent.start(tail)
	if d.journal.restores() {
		if err := d.syncAll(); err != nil {
			return err // the next Open restores the blocks again
		}
		if err := d.voidJournal(); err != nil {
			return err
		}
		d.journal.recent.start(tail)
	}
	if d.begin.Load() > tail {
		if err := d.storeBegin(tail); err != nil {
			return err
		}
		d.begin.Store(tail)
	}
	size := d.opts.SegmentSize
	last := d.segments.get(tail / size)
	switch {
	case tail%size == 0:
		last = nil
	case last == nil && d.summed[tail/size]:
		// Continuing would overwrite the sums of the missing segment.
		return fmt.Errorf("ssdtier: start at address %d: %w", tail, d.noSegment(tail/size))
	}
	err := released(d.removeSegments(func(number int64) bool { return number*size >= tail }))
	if last != nil {
		err = errors.Join(err, d.endSegment(last, tail%size))
	}
	for _, s := range d.segments.all() {
		s.written.Store(alignUp(min(tail-s.number*size, size), sumUnit))
		if s.sumsErr != nil {
			d.opts.Logger.Warn("the checksums of a segment are lost, reads of it fail", "segment", s.file.Name(), "err", s.sumsErr)
		}
	}
	d.openJournal() // while there is space; its failure is logged
	return errors.Join(err, d.removeCompanions(), cmp.Or(d.syncNames(), d.syncErr))
}

// endSegment truncates the segment in which the log ends at the offset tail. Its sums are
// durable before their blocks are written again. The caller holds mu.
func (d *Device) endSegment(s *segment, tail int64) error {
	if err := s.cut(alignUp(tail, int64(d.block))); err != nil {
		return err
	}
	s.accepted.Store(nil)
	s.sums.cut((tail + sumUnit - 1) / sumUnit)
	if tail%sumUnit != 0 {
		if err := s.accept(tail, d.block); err != nil {
			return err
		}
	}
	s.dirty.Store(true)
	return s.storeSums(s.changedSums())
}

// Truncate implements device.Device. Begin is durable before any space is released.
func (d *Device) Truncate(begin int64) error {
	if begin < 0 {
		return fmt.Errorf("ssdtier: %s: truncate to address %d, want 0 or more", d.dir, begin)
	}
	return released(d.truncate(begin))
}

func (d *Device) truncate(begin int64) (removed []*segment, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	if begin < d.begin.Load() {
		return nil, nil
	}
	if begin > d.begin.Load() { // else what could not be removed is tried again
		if err := d.comeHome(); err != nil { // an older commit may need what is removed
			return nil, err
		}
		if err := d.storeBegin(begin); err != nil {
			return nil, err
		}
		d.begin.Store(begin)
		d.journal.recent.truncate(begin, d.block)
	}
	size := d.opts.SegmentSize
	return d.removeSegments(func(number int64) bool { return number < begin/size })
}

// Sync implements device.Device.
func (d *Device) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	if err := d.syncAll(); err != nil {
		return err
	}
	return d.voidJournal()
}

// syncFiles makes segments, their sums and their names durable, those it can. The caller holds mu.
func (d *Device) syncFiles() (err error) {
	for _, s := range d.segments.all() {
		err = cmp.Or(err, d.syncSegment(s))
	}
	if d.newFiles {
		names := d.syncNames()
		d.newFiles = names != nil
		err = cmp.Or(err, names)
	}
	return cmp.Or(d.syncErr, err)
}

// syncSegment makes durable what was written to a segment, then its sums.
func (d *Device) syncSegment(s *segment) error {
	// Cleared first: a write that ends during the fsync belongs to the next one.
	if !s.dirty.Swap(false) {
		return nil
	}
	if err := s.checkNames(); err != nil {
		s.dirty.Store(true)
		return err
	}
	changed := s.changedSums()
	if err := s.sync(); err != nil {
		d.syncErr = cmp.Or(d.syncErr, fmt.Errorf("ssdtier: sync: %w", err))
		return d.syncErr
	}
	d.newFiles = d.newFiles || s.newSums // the file is created now
	if err := s.storeSums(changed); err != nil {
		s.dirty.Store(true)
		return err
	}
	return nil
}

// Close implements device.Device.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed.Load() {
		d.mu.Unlock()
		return nil
	}
	d.closed.Store(true)
	d.mu.Unlock() // a worker may be creating a segment
	d.pool.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := []error{d.closeJournal()}
	for _, s := range d.segments.all() {
		errs = append(errs, s.cut(alignUp(s.written.Load(), int64(d.block))))
	}
	d.segments.closeAll()
	d.spares.close()
	d.buffers.close()
	return errors.Join(append(errs, d.lock.close())...)
}

// String names the device for errors.
func (d *Device) String() string { return "directory " + d.dir }

// path is the path of a file in the directory.
func (d *Device) path(name string) string { return filepath.Join(d.dir, name) }

// alignUp rounds n up to a multiple of align, a power of two.
func alignUp(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }
