package blob

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"

	gcblob "gocloud.dev/blob"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/internal/blocking"
	"github.com/redykv/redykv/device/internal/progress"
)

// Device is a log on a local device with a copy in a bucket. It implements
// device.Device, and owns the local one.
type Device struct {
	local  device.Device
	opts   Options
	bucket *bucket
	owned  bool // the bucket is closed with the device
	reads  *blocking.Engine
	lone   loneQueues
	counts counts

	begin atomic.Int64 // of the log
	// catalog is the newest state in the bucket, as far as it belongs to the log since the
	// last Start; nil while it is not known. Only the uploader and Start replace it.
	catalog atomic.Pointer[catalog]

	// ordering is held to change metadata, objects or Begin, and by the uploader to take a
	// consistent snapshot. Taken before mu.
	ordering sync.Mutex

	mu      sync.Mutex // guards the fields below
	state   *state
	meta    map[string][]byte // all of it
	tail    int64             // of the last Start
	started bool
	closed  bool
	log     logState
	changes uint64 // counts changes that have to be uploaded
	up      uploader
}

// Open puts a bucket behind a persistent local device, which the result owns unless Open
// fails. If the local device is empty and the bucket is not, metadata and objects are fetched
// first. If the local device has all of the log, the bucket need not be reachable.
func Open(ctx context.Context, local device.Device, b *gcblob.Bucket, opts Options) (*Device, error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	d := &Device{local: local, opts: opts, meta: make(map[string][]byte)}
	d.bucket = &bucket{Bucket: b, patience: opts.Patience, unconditional: opts.OnlyWriter, retried: d.retried}
	d.up.init()
	if err := d.match(ctx); err != nil {
		return nil, err
	}
	for _, name := range d.state.Meta {
		data, err := local.ReadMeta(name)
		if err == nil {
			d.meta[name] = data
		} else if !errors.Is(err, device.ErrNoMeta) {
			return nil, fmt.Errorf("blob: %w", err)
		}
	}
	d.begin.Store(d.state.Begin)
	d.reads = blocking.New("blob", storage{d}, opts.Readers)
	return d, nil
}

// OpenURL is Open with a bucket by its URL, as gocloud.dev/blob.OpenBucket takes it. The
// driver must have been imported. A bucket of files has no_tmp_dir=true, unless the URL sets it.
func OpenURL(ctx context.Context, local device.Device, bucketURL string, opts Options) (*Device, error) {
	b, err := gcblob.OpenBucket(ctx, withDefaults(bucketURL))
	if err != nil {
		return nil, fmt.Errorf("blob: bucket %s: %w", bucketURL, err)
	}
	d, err := Open(ctx, local, b, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bucket %s: %w", bucketURL, err), b.Close())
	}
	d.owned = true
	return d, nil
}

// withDefaults returns a bucket's URL with our defaults. The driver of files writes them in the
// directory for temporary files, and cannot move them from there to another file system.
func withDefaults(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "file" {
		return text // gocloud.dev says what is wrong
	}
	params := u.Query()
	if !params.Has("no_tmp_dir") {
		params.Set("no_tmp_dir", "true")
	}
	u.RawQuery = params.Encode()
	return u.String()
}

// Start implements device.Device. From then on the log is uploaded.
func (d *Device) Start(tail int64) error {
	if tail < 0 {
		return fmt.Errorf("blob: start at address %d, want 0 or more", tail)
	}
	d.ordering.Lock()
	defer d.ordering.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return device.ErrClosed
	}
	if err := d.local.Start(tail); err != nil {
		return err
	}
	if d.isNew() && d.state.First != tail {
		if err := d.change(func(s *state) { s.First = tail }); err != nil {
			return err
		}
	}
	if d.state.Restored && !d.state.Started {
		// Only the bucket has the log below the block in which it continues.
		if err := d.local.Truncate(tail &^ (int64(d.local.Alignment()) - 1)); err != nil {
			return err
		}
		if err := d.change(func(s *state) { s.Started = true }); err != nil {
			return err
		}
	}
	if d.begin.Load() > tail {
		if err := d.change(func(s *state) { s.Begin = tail }); err != nil {
			return err
		}
		d.begin.Store(tail)
	}
	d.tail = tail
	d.log = logState{synced: tail, durable: tail, dirty: tail}
	d.log.writes.Reset(tail)
	if c := d.catalog.Load(); c != nil {
		d.adopt(c)
	} // else the uploader does, when it reaches the bucket
	if !d.started {
		d.started = true
		d.up.start(d)
	}
	d.changed()
	return nil
}

// Prepare implements device.Preparer: nothing is uploaded yet, and the bucket is only read.
func (d *Device) Prepare(tail int64) error { return device.Prepare(d.local, tail) }

// isNew reports whether the log is empty when it is started: no state of a store is there, or one
// without a log was restored. The caller holds mu.
func (d *Device) isNew() bool {
	if !d.state.Restored {
		return len(d.state.Meta) == 0
	}
	c := d.catalog.Load()
	return !d.state.Started && c != nil && len(c.Pieces) == 0
}

// adopt restricts a catalog to the log as it was started: parts of the bucket's log after that
// address do not belong to it. The last block may have been written again. The caller holds
// mu.
func (d *Device) adopt(c *catalog) {
	c = c.clone()
	c.end(d.tail)
	align := int64(max(d.local.Alignment(), blockSize))
	end := d.begin.Load()
	if n := len(c.Pieces); n > 0 {
		end = c.Pieces[n-1].To
	}
	d.log.dirty = min(d.log.dirty, max(min(end, d.tail)-align, 0))
	d.catalog.Store(c)
}

// Alignment implements device.Device.
func (d *Device) Alignment() int { return d.local.Alignment() }

// Begin implements device.Device.
func (d *Device) Begin() int64 { return d.begin.Load() }

// Parts implements device.Composite.
func (d *Device) Parts() []any { return []any{d.local} }

// CacheMemory implements device.CacheUser.
func (d *Device) CacheMemory() int64 { return device.CacheMemory(d.local) }

// Truncate implements device.Device. The bucket follows when it has a state without the
// truncated part.
func (d *Device) Truncate(begin int64) error {
	if begin < 0 {
		return fmt.Errorf("blob: truncate to address %d, want 0 or more", begin)
	}
	local, err := d.truncate(begin)
	if err != nil || !local {
		return err
	}
	return d.local.Truncate(begin) // no commit waits for the files that it removes
}

// truncate changes Begin, and reports whether the local device has a truncated part.
func (d *Device) truncate(begin int64) (local bool, err error) {
	d.ordering.Lock()
	defer d.ordering.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false, device.ErrClosed
	}
	if begin < d.begin.Load() {
		return false, nil
	}
	local = begin >= d.local.Begin() // else only the bucket has it
	if begin == d.begin.Load() {
		return local, nil // it may not have removed all
	}
	if err := d.change(func(s *state) {
		s.Begin = begin
		s.Restored = s.Restored && !local
	}); err != nil {
		return false, err
	}
	d.begin.Store(begin)
	d.log.writes.Truncate(begin)
	d.changed()
	return local, nil
}

// Sync implements device.Device, on the local device.
func (d *Device) Sync() error {
	d.mu.Lock()
	covered := d.log.writes.Written()
	d.mu.Unlock()
	if err := d.local.Sync(); err != nil {
		return err
	}
	d.mu.Lock()
	d.log.synced = max(d.log.synced, covered)
	d.mu.Unlock()
	return nil
}

// WriteMeta implements device.Device, on the local device. It completes a state of the store,
// which is uploaded next. It fails if another machine has taken the store.
func (d *Device) WriteMeta(name string, data []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	d.ordering.Lock()
	defer d.ordering.Unlock()
	if err := d.mayWrite(name); err != nil {
		return err
	}
	if err := d.local.WriteMeta(name, data); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.meta[name] = slices.Clone(data)
	d.log.durable = d.log.synced
	d.changed()
	return nil
}

// mayWrite returns an error if metadata cannot be written, and records its name.
func (d *Device) mayWrite(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return device.ErrClosed
	}
	if err := d.up.fatal; err != nil {
		return err
	}
	return d.know(name)
}

// know records that there is metadata of a name. The caller holds mu.
func (d *Device) know(name string) error {
	if slices.Contains(d.state.Meta, name) {
		return nil
	}
	return d.change(func(s *state) { s.Meta = append(s.Meta, name) })
}

// ReadMeta implements device.Device, on the local device.
func (d *Device) ReadMeta(name string) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	d.ordering.Lock()
	defer d.ordering.Unlock()
	data, err := d.local.ReadMeta(name)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// A device that was used without a bucket before has metadata whose names are not
	// recorded yet.
	if _, known := d.meta[name]; !known && !d.closed {
		if err := d.know(name); err != nil {
			return nil, err
		}
		d.meta[name] = slices.Clone(data)
		d.changed()
	}
	return data, nil
}

// checkName is device.CheckName, and excludes stateName.
func checkName(name string) error {
	if name == stateName {
		return fmt.Errorf("blob: metadata name %q is reserved", name)
	}
	return device.CheckName(name)
}

// changed wakes the uploader. The caller holds mu.
func (d *Device) changed() {
	d.changes++
	d.up.poke()
}

// Close implements device.Device. It waits for uploads for up to Options.Linger. What was not
// uploaded is uploaded when the local device is opened again.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	started := d.started
	d.mu.Unlock()
	if started {
		d.up.finish(d.opts.Linger)
	}
	d.up.cancel()
	d.reads.Close()
	err := errors.Join(d.lone.close(), d.local.Close())
	if d.owned {
		err = errors.Join(err, d.bucket.Close())
	}
	return err
}

// logState is what is known about the log since Start.
type logState struct {
	writes progress.Writes
	// Everything below synced was synced. Everything below durable was synced before the
	// newest metadata, which depends on nothing above it.
	synced, durable int64
	dirty           int64 // no write below it has ended since the last snapshot
}

// beginWrite adds a write.
func (d *Device) beginWrite(w progress.Span) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log.writes.Begin(w)
}

// endWrite records the end of a write. A full segment is uploaded.
func (d *Device) endWrite(w progress.Span, succeeded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.log.writes.Written()
	if !d.log.writes.End(w, succeeded) {
		return
	}
	d.log.dirty = min(d.log.dirty, w.From)
	if size := d.state.SegmentSize; before/size != d.log.writes.Written()/size {
		d.changed()
	}
}
