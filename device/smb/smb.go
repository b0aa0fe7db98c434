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
// Caveats:
//   - A write or a change that was pending when its connection broke fails. If the server had
//     bytes that were not durable, all later writes fail too, and so do reads above what the
//     last Sync covered: [ErrDoubt]. SMB cannot distinguish a cut network from a server that
//     lost its memory. Start, which tells where the log ends, ends that state: a Tiered calls
//     it for tiers before its last. A store whose last tier is the server has to be opened
//     again.
//   - The files have no checksums: the bytes of the server are not verified. Options.Sign
//     protects the messages.
//   - Sync depends on the server: it requests a flush of each file that was written, and of
//     the directory, which some servers do not support.
//   - Files in the directory with other names than those above are not touched.
package smb

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/internal/blocking"
	"github.com/redykv/redykv/device/internal/progress"
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
	syncing bool // files taken out of dirty are being made durable
	writes  progress.Writes
	synced  int64 // the log is durable below this address; before Start there is no limit
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
		synced: math.MaxInt64,
	}
	d.segments.Store(&map[int64]*file{})
	for i := range opts.Sessions {
		d.sessions = append(d.sessions, &session{d: d, number: i})
	}
	d.engine = blocking.New("smb: "+d.opts.place(), storage{d}, opts.Sessions*opts.Pipeline)
	defer func() {
		if err != nil {
			_ = d.Close() // err is returned
		}
	}()
	for _, s := range d.sessions {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("smb: %s: %w", d.opts.place(), err)
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
func (d *Device) String() string { return d.opts.place() }

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

// askFile is ask for a request to an open file.
func (d *Device) askFile(changes bool, f *file, flags int, what func(*smb2.File) error) error {
	return d.ask(changes, func(l *link) error { return l.use(d, f, flags, what) })
}

// lost records that a connection broke, with or without pending changes, and returns the
// error of its requests.
func (d *Device) lost(why error, changes bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if changes || d.syncing || len(d.dirty) > 0 {
		if d.doubt == nil {
			d.doubt = fmt.Errorf("%w: %s: connection lost: %w", ErrDoubt, d.opts.place(), why)
		}
	}
	if changes {
		return d.doubt
	}
	return fmt.Errorf("%w: %s: %w", ErrDisconnected, d.opts.place(), why)
}

func (d *Device) inDoubt() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.doubt
}

// believe returns an error if the server may lack bytes below an address that it was given, so that it
// may have answered a read of them with others.
func (d *Device) believe(end int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if end <= d.synced {
		return nil
	}
	return d.doubt
}

// fence ends the use of a directory that another Device has taken, if why is not nil. It
// returns why the use has ended.
func (d *Device) fence(why error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fenceBy = cmp.Or(d.fenceBy, why)
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
		return fmt.Errorf("smb: %s: start at address %d, want 0 or more", d.opts.place(), tail)
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
	d.doubt, d.dirty, d.synced = nil, make(map[*file]struct{}), tail
	d.writes.Reset(tail)
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
		return fmt.Errorf("smb: %s: the server still holds the removed file %s open, try again", d.opts.place(), d.trash[0].name)
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
	err := d.askFile(true, f, 0, func(open *smb2.File) error {
		info, err := open.Stat()
		if err == nil && info.Size() > n {
			err = open.Truncate(n)
		}
		if err == nil {
			err = open.Sync()
		}
		return err
	})
	return d.named("cut "+f.name, err)
}

// named adds the place and the request to an error of the server, which names at most the
// file.
func (d *Device) named(what string, err error) error {
	if err == nil || errors.Is(err, ErrDisconnected) || errors.Is(err, ErrDoubt) || errors.Is(err, ErrLocked) || errors.Is(err, device.ErrClosed) {
		return err // it has them, or needs none
	}
	return fmt.Errorf("smb: %s: %s: %w", d.opts.place(), what, err)
}

// Truncate implements device.Device. Begin is durable before any space is released. At the same begin
// again, it releases what it could not before.
func (d *Device) Truncate(begin int64) error {
	if begin < 0 {
		return fmt.Errorf("smb: %s: truncate to address %d, want 0 or more", d.opts.place(), begin)
	}
	d.change.Lock()
	defer d.change.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	switch now := d.begin.Load(); {
	case begin < now:
		return nil
	case begin == now:
		return d.sweep()
	}
	if err := d.storeHead(begin); err != nil {
		return err
	}
	d.begin.Store(begin)
	d.mu.Lock()
	d.writes.Truncate(begin)
	d.mu.Unlock()
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
	files, written := d.dirty, d.writes.Written()
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
	if d.doubt == nil {
		d.synced = max(d.synced, written)
	}
	return d.doubt
}

func (d *Device) syncFile(f *file) error {
	err := d.askFile(true, f, 0, (*smb2.File).Sync)
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
