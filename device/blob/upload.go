package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/redykv/redykv/device"
)

// uploader is the state of the goroutine that uploads to the bucket.
type uploader struct {
	wake     chan struct{} // holds a token if something has changed
	ctx      context.Context
	cancel   context.CancelFunc
	stopping chan struct{} // closed by finish
	stopped  chan struct{}
	stopOnce sync.Once

	probed bool // the bucket obeys conditional writes
	looked bool // all blobs in the bucket were listed, and a catalog was stored

	// Guarded by Device.mu.
	fatal    error         // if set, nothing is uploaded any more, such as when another machine has taken the store
	failure  error         // of the last upload; nil if it succeeded
	uploaded uint64        // changes that are in the bucket
	last     time.Time     // of the last successful upload
	taken    []string      // objects of the last snapshot, unless it is uploaded
	replaced []string      // of these, since
	news     chan struct{} // closed when one of these fields changes
}

func (u *uploader) init() {
	u.wake, u.news = make(chan struct{}, 1), make(chan struct{})
	u.stopping, u.stopped = make(chan struct{}), make(chan struct{})
	u.ctx, u.cancel = context.WithCancel(context.Background())
}

func (u *uploader) start(d *Device) {
	u.poke()
	go func() {
		defer close(u.stopped)
		d.upload()
	}()
}

func (u *uploader) poke() {
	select {
	case u.wake <- struct{}{}:
	default: // a token is there already
	}
}

// finish ends the uploader when everything is in the bucket, or after Options.Linger.
func (u *uploader) finish(patience time.Duration) {
	u.stopOnce.Do(func() { close(u.stopping) })
	if patience > 0 {
		select {
		case <-u.stopped:
		case <-time.After(patience):
		}
	}
	u.cancel()
	<-u.stopped
}

// longestPause is the longest time between two uploads that fail.
const longestPause = time.Minute

// upload uploads what has changed until the device is closed, at most once in
// Options.Every.
func (d *Device) upload() {
	pause := d.opts.Every
	stopping := d.up.stopping // nil once the device is being closed
	for {
		select {
		case <-d.up.wake:
		case <-stopping:
			stopping = nil
		}
		err := d.uploadOnce(d.up.ctx)
		fatal := d.uploadEnded(err)
		switch {
		case fatal, d.up.ctx.Err() != nil, err == nil && stopping == nil:
			return
		case err == nil:
			pause = d.opts.Every
		default:
			d.up.poke()
			pause = min(2*max(pause, firstPause), longestPause)
		}
		if stopping == nil {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-d.up.ctx.Done():
		case <-stopping:
		}
	}
}

// uploadEnded records the result of an upload, and logs it if that has changed. It reports
// whether nothing can be uploaded any more.
func (d *Device) uploadEnded(err error) (fatal bool) {
	fatal = errors.Is(err, ErrTaken) || errors.Is(err, ErrForeign) || errors.Is(err, ErrFormat) || errors.Is(err, ErrUnconditional)
	d.mu.Lock()
	before, level := d.up.failure, slog.LevelWarn
	d.up.failure = err
	if d.isEmpty() {
		level = slog.LevelError
	}
	if fatal {
		d.up.fatal = err
	}
	close(d.up.news)
	d.up.news = make(chan struct{})
	d.mu.Unlock()
	switch {
	case err != nil && before == nil:
		d.opts.Logger.Log(context.Background(), level, "upload to the bucket failed", "err", err, "retried", !fatal)
	case err == nil && before != nil:
		d.opts.Logger.Info("the bucket is up to date again")
	}
	return fatal
}

// retried counts a request that is retried.
func (d *Device) retried(what string, err error) {
	d.counts.retries.Add(1)
	d.opts.Logger.Debug("request to the bucket failed, it is tried again", "what", what, "err", err)
}

// errStale means that something in a snapshot was removed, so a newer snapshot is needed.
var errStale = errors.New("blob: the store has changed during the upload")

// snapshot is a state of the store that may be uploaded.
type snapshot struct {
	changes     uint64
	begin       int64
	dirty, to   int64 // of the log, dirty..to is to be uploaded
	meta        map[string][]byte
	objects     []string
	replaced    []string
	segmentSize int64
}

// snapshot returns a snapshot. What it covers is no longer dirty.
func (d *Device) snapshot() (*snapshot, error) {
	d.ordering.Lock()
	defer d.ordering.Unlock()
	objects, err := d.local.ListObjects()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	size := d.state.SegmentSize
	s := &snapshot{
		changes: d.changes, begin: d.begin.Load(), dirty: d.log.dirty,
		to:   max(d.log.durable, d.log.writes.Written()/size*size),
		meta: maps.Clone(d.meta), objects: objects, replaced: slices.Clone(d.state.Replaced), segmentSize: size,
	}
	if s.to <= d.state.First { // no block was written yet
		s.to = s.begin
	}
	d.log.dirty = s.to
	d.up.taken, d.up.replaced = objects, nil
	return s, nil
}

// failed marks what a snapshot covers as dirty again.
func (d *Device) failed(s *snapshot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log.dirty = min(d.log.dirty, s.dirty)
}

// uploadOnce uploads a state of the store, taken after the call.
func (d *Device) uploadOnce(ctx context.Context) error {
	if err := d.attach(ctx); err != nil {
		return err
	}
	for {
		s, err := d.snapshot()
		if err != nil {
			return err
		}
		if d.isUploaded(s) {
			return nil
		}
		err = d.uploadSnapshot(ctx, s)
		if err == nil {
			return nil
		}
		d.failed(s)
		if !errors.Is(err, errStale) || ctx.Err() != nil {
			return err
		}
	}
}

// attach matches device and bucket, as far as the bucket was not reachable when the device was
// opened.
func (d *Device) attach(ctx context.Context) error {
	if err := d.probe(ctx); err != nil {
		return err
	}
	if d.catalog.Load() != nil {
		return nil
	}
	c, err := d.bucket.newestCatalog(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.belongs(c); err != nil {
		return err
	}
	if c == nil {
		c = &catalog{
			Format: catalogFormat, Store: d.state.Store, SegmentSize: d.state.SegmentSize,
			Objects: map[string]stored{}, Meta: map[string][]byte{},
		}
	}
	d.adopt(c)
	return nil
}

// isUploaded reports whether a snapshot has nothing new.
func (d *Device) isUploaded(s *snapshot) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.up.uploaded == s.changes && d.catalog.Load().Number > 0
}

// uploadSnapshot stores the parts of a snapshot and then its catalog.
func (d *Device) uploadSnapshot(ctx context.Context, s *snapshot) error {
	old := d.catalog.Load()
	next := d.following(old)
	next.drop(s.begin)
	next.Meta = s.meta
	if err := d.uploadLog(ctx, s, next); err != nil {
		return err
	}
	// uploadLog may have stored newer catalogs.
	old = d.catalog.Load()
	next.Number = old.Number + 1
	if err := d.uploadObjects(ctx, s, old, next); err != nil {
		return err
	}
	if err := d.publish(ctx, next, s.to); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.up.uploaded, d.up.last = max(d.up.uploaded, s.changes), time.Now()
	since := d.up.replaced
	d.up.taken, d.up.replaced = nil, nil
	if len(s.replaced) == 0 && d.state.Uploaded {
		return nil
	}
	return d.change(func(st *state) {
		st.Uploaded = true
		st.Replaced = slices.DeleteFunc(st.Replaced, func(name string) bool {
			return slices.Contains(s.replaced, name) && !slices.Contains(since, name)
		})
	})
}

// publish stores a catalog that has the log at least up to an address, and deletes blobs that
// are no longer needed. The bucket must hold all that the catalog names, so that a catalog
// that can be restored is only deleted for another one.
func (d *Device) publish(ctx context.Context, next *catalog, end int64) error {
	old := d.catalog.Load()
	there, err := d.prove(ctx, old, next, end)
	if err != nil {
		return err
	}
	if err := d.bucket.storeCatalog(ctx, next); err != nil {
		return err
	}
	d.counts.uploads.Add(1)
	d.catalog.Store(next)
	d.up.looked = true
	d.sweep(ctx, old, next, there)
	return nil
}

// following returns the next catalog, with the same content.
func (d *Device) following(c *catalog) *catalog {
	next := c.clone()
	next.Number++
	d.mu.Lock()
	next.Writer = d.state.Writer
	d.mu.Unlock()
	return next
}

// between is the largest number of bytes that are uploaded without a catalog that contains
// them. After an interruption only these bytes are uploaded again.
const between = 1 << 30

// uploadLog uploads the segments of the log that have changed, and adds them to next.
func (d *Device) uploadLog(ctx context.Context, s *snapshot, next *catalog) error {
	size := s.segmentSize
	since := int64(0)
	for start := max(s.dirty, s.begin) / size * size; start < s.to; start += size {
		p := piece{From: max(start, s.begin), To: min(start+size, s.to)}
		if p.From >= p.To {
			continue
		}
		p.Stored, p.Key = p.To, next.segmentKey(p.From)
		if err := d.uploadPiece(ctx, p); err != nil {
			return err
		}
		next.set(p)
		if since += p.To - p.From; since < between {
			continue
		}
		since = 0
		// The old state with further pieces.
		before := d.catalog.Load()
		step := d.following(before)
		for _, p := range next.Pieces {
			step.set(p)
		}
		if err := d.publish(ctx, step, before.reach()); err != nil {
			return err
		}
		next.Number = step.Number + 1
	}
	return nil
}

// uploadPiece uploads a part of the log.
func (d *Device) uploadPiece(ctx context.Context, p piece) error {
	return d.bucket.put(ctx, p.Key, false, func(w io.Writer) error {
		return pack(w, p.From, p.To, func(dst []byte, addr int64) error {
			if err := d.read(ctx, dst, addr); err != nil {
				if addr < d.begin.Load() {
					err = errStale
				}
				return &sourceError{err}
			}
			d.counts.bytesUp.Add(uint64(len(dst)))
			return nil
		})
	})
}

// uploadObjects uploads the objects of a snapshot that the bucket does not have, and adds all
// to next.
func (d *Device) uploadObjects(ctx context.Context, s *snapshot, old, next *catalog) error {
	next.Objects = make(map[string]stored, len(s.objects))
	for _, name := range s.objects {
		o, err := d.local.OpenObject(name)
		if errors.Is(err, device.ErrNoObject) {
			return errStale
		}
		if err != nil {
			return err
		}
		there, ok := old.Objects[name]
		if !ok || there.Size != o.Size() || slices.Contains(s.replaced, name) {
			there = stored{Key: next.objectKey(name), Size: o.Size()}
			err = d.uploadObject(ctx, there, o)
		}
		if err = errors.Join(err, o.Close()); err != nil {
			return fmt.Errorf("blob: object %s: %w", name, err)
		}
		next.Objects[name] = there
	}
	return nil
}

func (d *Device) uploadObject(ctx context.Context, s stored, o device.Object) error {
	return d.bucket.put(ctx, s.Key, false, func(w io.Writer) error {
		return pack(w, 0, s.Size, func(dst []byte, off int64) error {
			if n, err := o.ReadAt(dst, off); n < len(dst) { // at its end there is an io.EOF
				return &sourceError{err}
			}
			d.counts.bytesUp.Add(uint64(len(dst)))
			return nil
		})
	})
}

// sweep deletes blobs that no state needs any more: those of the previous state, and blobs of
// this package among others that are there. Blobs that cannot be deleted now are deleted after
// the device was opened again.
func (d *Device) sweep(ctx context.Context, old, next *catalog, there map[string]int64) {
	drop := old.keys()
	for key := range there {
		if ours.MatchString(key) {
			drop[key] = true
		}
	}
	keep := next.keys()
	for key := range drop {
		if n, ok := parseCatalogKey(key); ok && n > next.Number || keep[key] {
			continue // a newer catalog of another machine: the next upload detects it
		}
		if err := d.bucket.remove(ctx, key); err != nil {
			d.opts.Logger.Warn("an unneeded blob could not be deleted, it stays until the device is opened again", "key", key, "err", err)
		}
	}
}

// ours matches the names of this package's blobs, and of files that killed processes left in a bucket
// of files: the bucket may have others.
var ours = regexp.MustCompile(`^((catalog/[0-9a-f]{16}|segment/\d{12}-[0-9a-f]+-[A-Z2-7]{16}|object/[\w.-]+-[0-9a-f]+-[A-Z2-7]{16})(\.[0-9a-f]+\.tmp)?|probe\.[0-9a-f]+\.tmp)$`)
