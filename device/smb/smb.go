// Package smb is a log in a directory of an SMB file server: a device.Device that stores its
// bytes in files of a share, as the paper's baseline does (section 8), and reads and writes
// them over several sessions with many pending requests on each.
//
//	LOG                version of the layout, size of a segment, lowest address of the log
//	LOCK.*             held open by the Device that has the directory
//	000000000000.seg   segment 0: addresses 0 to SegmentSize
//	000000000001.seg   segment 1, …
//	meta.NAME          the metadata of that name
//	OBJECTS            the names, files and sizes of the objects
//	object.NUMBER      an object
//	*.tmp              what is being made; removed when the directory is opened
//
// The server supports SMB 2.0.2 to 3.1.1: Samba, Windows, an appliance. A read requests only
// its bytes, and a write may have any length. A connection that breaks is made again, and its
// pending reads are repeated, on another session first.
//
// Caveats worth knowing:
//   - A write or a change that was pending when its connection broke fails. If the server had
//     bytes that were not durable, all later writes fail too: [ErrDoubt]. SMB cannot
//     distinguish a cut network from a server that lost its memory. Start, which tells where
//     the log ends, ends that state: a Tiered calls it for tiers before its last. A store
//     whose last tier is the server has to be opened again.
//   - The files have no checksums: the bytes of the server are not verified. Options.Sign
//     protects the messages.
//   - Sync depends on the server: it requests a flush of each file that was written, and of
//     the directory, which some servers do not support.
//   - Files in the directory with other names than those above are not touched.
package smb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/internal/blocking"
)

// Device is a log on a file server. It implements device.Device.
type Device struct {
	opts     Options
	owner    string // in the names of its lock files
	sessions []*session
	turn     atomic.Uint32 // the session that is asked next
	engine   *blocking.Engine
	closed   atomic.Bool
	closing  chan struct{} // closed when Close begins

	// begin is raised before a segment below it is removed. A read compares it first; a
	// segment that is removed during the read does not exist then.
	begin    atomic.Int64
	segments atomic.Pointer[map[int64]*file] // replaced, never changed, under mu
	newFiles atomic.Bool                     // segments were made since the last Sync

	// change serializes changes of the directory, except writes of the log.
	change  sync.Mutex
	temps   int     // numbers temporary files
	noDirs  bool    // the server does not flush directories
	trash   []*file // gone, and possibly not removed yet
	objects objects

	mu      sync.Mutex // guards the fields below; not held during requests
	dirty   map[*file]struct{}
	syncing bool  // files taken out of dirty are being made durable
	doubt   error // see ErrDoubt
	fenceBy error // set when another Device has taken the directory
}

// Open opens the log on the server, and creates its directory if it does not exist. ctx
// bounds the opening.
func Open(ctx context.Context, opts Options) (_ *Device, err error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	var owner [8]byte
	_, _ = rand.Read(owner[:]) // never fails
	d := &Device{
		opts: opts, owner: hex.EncodeToString(owner[:]), closing: make(chan struct{}), dirty: make(map[*file]struct{}),
	}
	d.segments.Store(&map[int64]*file{})
	for i := range opts.Sessions {
		d.sessions = append(d.sessions, &session{d: d, number: i})
	}
	d.engine = blocking.New("smb: "+d.place(), storage{d}, opts.Sessions*opts.Pipeline)
	defer func() {
		if err != nil {
			_ = d.Close() // err is returned
		}
	}()
	for _, s := range d.sessions {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("smb: %s: %w", d.place(), err)
		}
		if _, err := s.connect(); err != nil {
			return nil, err
		}
	}
	d.change.Lock()
	defer d.change.Unlock()
	if err := d.load(); err != nil {
		return nil, err
	}
	return d, nil
}

// String names the device for errors.
func (d *Device) String() string { return d.place() }

// place is the name of the directory in errors.
func (d *Device) place() string { return d.opts.place() }

// path is the path of a file in the directory, on the share.
func (d *Device) path(name string) string {
	if d.opts.Dir == "" {
		return name
	}
	return d.opts.Dir + "/" + name
}

// next returns the next session in turn.
func (d *Device) next() *session {
	return d.sessions[d.turn.Add(1)%uint32(len(d.sessions))]
}

// ask calls what with a link, and retries with others while links break. A request that
// changes something is not repeated after it was sent.
func (d *Device) ask(changes bool, what func(*link) error) error {
	var deadline time.Time
	for try, pause := 1, firstPause; ; try++ {
		if changes {
			if err := d.inDoubt(); err != nil {
				return err
			}
		}
		err := d.next().do(changes, what)
		if !errors.Is(err, ErrDisconnected) || errors.Is(err, ErrDoubt) {
			return err
		}
		switch now := time.Now(); {
		case deadline.IsZero():
			deadline = now.Add(d.opts.Timeout)
		case now.After(deadline):
			return err
		}
		if try < len(d.sessions) {
			continue
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		case <-d.closing:
			return err
		}
	}
}

// lost records that a connection broke, with or without pending changes, and returns the
// error of its requests.
func (d *Device) lost(why error, changes bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if changes || d.syncing || len(d.dirty) > 0 {
		if d.doubt == nil {
			d.doubt = fmt.Errorf("%w: %s: a connection broke: %w", ErrDoubt, d.place(), why)
		}
	}
	if changes {
		return d.doubt
	}
	return fmt.Errorf("%w: %s: %w", ErrDisconnected, d.place(), why)
}

func (d *Device) inDoubt() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.doubt
}

// fence ends the use of a directory that another Device has taken.
func (d *Device) fence(why error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fenceBy == nil {
		d.fenceBy = why
	}
	return d.fenceBy
}

func (d *Device) fenced() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fenceBy
}

// NewQueue implements device.Device.
func (d *Device) NewQueue(depth int) (device.Queue, error) {
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	return d.engine.NewQueue(depth)
}

// Alignment implements device.Device: 1, any bytes can be written.
func (d *Device) Alignment() int { return 1 }

// Begin implements device.Device.
func (d *Device) Begin() int64 { return d.begin.Load() }

// Start implements device.Device. It removes segments at and above tail, and truncates the
// one that contains tail. It fails while the server may still carry out requests of a broken
// connection.
func (d *Device) Start(tail int64) error {
	if tail < 0 {
		return fmt.Errorf("smb: %s: start at address %d", d.place(), tail)
	}
	d.change.Lock()
	defer d.change.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	for _, s := range d.sessions {
		if err := s.settle(); err != nil {
			return err
		}
	}
	d.mu.Lock()
	d.doubt, d.dirty = nil, make(map[*file]struct{})
	d.mu.Unlock()
	if d.begin.Load() > tail {
		if err := d.storeHead(tail); err != nil {
			return err
		}
		d.begin.Store(tail)
	}
	size := d.opts.SegmentSize
	if err := d.removeSegments(func(number int64) bool { return number*size >= tail }); err != nil {
		return err
	}
	if err := d.inDoubt(); err != nil {
		return err
	}
	if len(d.trash) > 0 {
		return fmt.Errorf("smb: %s: the server holds %s open, which is to be removed", d.place(), d.trash[0].name)
	}
	if last := d.segment(tail / size); last != nil {
		if err := d.cut(last, tail%size); err != nil {
			return err
		}
	}
	return nil
}

// cut truncates a segment to n bytes if it is longer.
func (d *Device) cut(f *file, n int64) error {
	err := d.ask(true, func(l *link) error {
		return l.use(d, f, 0, func(open *smb2.File) error {
			info, err := open.Stat()
			if err == nil && info.Size() > n {
				err = open.Truncate(n)
			}
			if err == nil {
				err = open.Sync()
			}
			return err
		})
	})
	return d.named("cut "+f.name, err)
}

// named adds the place and the request to an error of the server, which names at most the
// file.
func (d *Device) named(what string, err error) error {
	if err == nil || errors.Is(err, ErrDisconnected) || errors.Is(err, ErrDoubt) || errors.Is(err, ErrLocked) || errors.Is(err, device.ErrClosed) {
		return err // it has them, or needs none
	}
	return fmt.Errorf("smb: %s: %s: %w", d.place(), what, err)
}

// Truncate implements device.Device. Begin is durable before any space is released.
func (d *Device) Truncate(begin int64) error {
	if begin < 0 {
		return fmt.Errorf("smb: %s: truncate to address %d", d.place(), begin)
	}
	d.change.Lock()
	defer d.change.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	if begin <= d.begin.Load() {
		return nil
	}
	if err := d.storeHead(begin); err != nil {
		return err
	}
	d.begin.Store(begin)
	return d.removeSegments(func(number int64) bool { return number < begin/d.opts.SegmentSize })
}

// Sync implements device.Device.
func (d *Device) Sync() error {
	d.change.Lock()
	defer d.change.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	d.mu.Lock()
	files := d.dirty
	err := d.doubt
	if err == nil {
		d.dirty, d.syncing = make(map[*file]struct{}), true
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	for f := range files {
		if err = d.syncFile(f); err != nil {
			break
		}
	}
	if err == nil && d.newFiles.Swap(false) {
		err = d.syncDir()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncing = false
	if err != nil && d.doubt == nil {
		d.doubt = fmt.Errorf("%w: %w", ErrDoubt, err)
	}
	return d.doubt
}

func (d *Device) syncFile(f *file) error {
	err := d.ask(true, func(l *link) error {
		return l.use(d, f, 0, (*smb2.File).Sync)
	})
	if err != nil && f.gone.Load() && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return d.named("flush "+f.name, err)
}

// Close implements device.Device.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	close(d.closing)
	d.engine.Close()
	d.change.Lock()
	defer d.change.Unlock()
	var errs []error
	for _, s := range d.sessions {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

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
		return fmt.Errorf("%s: %d bytes at %d, below its begin %d: %w", d.place(), len(dst), addr, begin, device.ErrNotHeld)
	}
	return d.pieces(dst, addr, func(f *file, piece []byte, off int64) error {
		if f == nil {
			return fmt.Errorf("%s: no segment for %d bytes at %d: %w", d.place(), len(dst), addr, device.ErrNotHeld)
		}
		return d.read(f, piece, off)
	}, d.segment)
}

// WriteAt implements blocking.Storage. A write to a segment below Begin is dropped.
func (s storage) WriteAt(src []byte, addr int64) error {
	d := s.d
	return d.pieces(src, addr, func(f *file, piece []byte, off int64) error {
		if f == nil {
			return nil
		}
		return d.write(f, piece, off)
	}, d.segmentToWrite)
}

// pieces calls do for the parts of buf that lie in one segment each.
func (d *Device) pieces(buf []byte, addr int64, do func(f *file, piece []byte, off int64) error, find func(int64) *file) error {
	if addr > math.MaxInt64-d.opts.SegmentSize-int64(len(buf)) {
		return fmt.Errorf("smb: %s: %d bytes at %d: out of range", d.place(), len(buf), addr)
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
	err := d.ask(false, func(l *link) error {
		return l.use(d, f, 0, func(open *smb2.File) error {
			n, err := open.ReadAt(dst, off)
			if n < len(dst) && (err == nil || errors.Is(err, io.EOF)) {
				return fmt.Errorf("%s ends at offset %d: %w", f.name, off+int64(n), device.ErrNotHeld)
			}
			return err
		})
	})
	switch {
	case err == nil || !errors.Is(err, os.ErrNotExist):
	case f.gone.Load() || !f.made.Load():
		err = fmt.Errorf("%s: %w", f.name, device.ErrNotHeld)
	default:
		err = fmt.Errorf("%s is missing, put it back: %w", f.name, device.ErrCorrupt)
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
		d.soil(f)
		return l.use(d, f, flags, func(open *smb2.File) error {
			_, err := open.WriteAt(src, off)
			return err
		})
	})
	d.soil(f)
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

// soil records that a file is not durable.
func (d *Device) soil(f *file) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty[f] = struct{}{}
}
