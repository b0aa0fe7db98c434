package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redykv/redykv/device"
)

// match checks that local device and bucket belong together, and sets state and catalog.
func (d *Device) match(ctx context.Context) error {
	s, err := loadState(d.local)
	if err != nil {
		return err
	}
	c, err := d.bucket.newestCatalog(ctx)
	if err != nil {
		if s == nil || s.Restoring || s.Restored || errors.Is(err, ErrFormat) {
			return err
		}
		d.opts.Logger.Warn("the bucket cannot be read: reads of what only it holds fail until it can", "err", err)
		d.state = s
		return d.checkSize()
	}
	if err := d.probe(ctx); errors.Is(err, ErrUnconditional) {
		return err
	} else if err != nil {
		d.opts.Logger.Warn("the bucket cannot be written: nothing is uploaded until it can", "err", err)
	}
	switch {
	case s == nil && c == nil:
		d.state = d.newState(newName())
		if err := d.state.store(d.local); err != nil {
			return err
		}
	case s == nil:
		if err := d.checkEmpty(c); err != nil {
			return err
		}
		d.state = d.newState(c.Store)
		d.state.SegmentSize = c.SegmentSize
		if err := d.restore(ctx, c); err != nil {
			return err
		}
	case s.Restoring:
		d.state = s
		if c == nil || c.Store != s.Store {
			return fmt.Errorf("%w: the device was being restored from another store, or the bucket was emptied meanwhile", ErrForeign)
		}
		if err := d.restore(ctx, c); err != nil {
			return err
		}
	default:
		d.state = s
		if err := d.belongs(c); err != nil {
			return err
		}
	}
	if c != nil {
		d.catalog.Store(c)
	}
	return d.checkSize()
}

// probe checks, until it knows, that the bucket obeys conditional writes.
func (d *Device) probe(ctx context.Context) error {
	if d.opts.OnlyWriter || d.up.probed {
		return nil
	}
	err := d.bucket.probe(ctx)
	d.up.probed = err == nil
	return err
}

// newState returns the state of a device without one.
func (d *Device) newState(store string) *state {
	size := cmp.Or(d.opts.SegmentSize, DefaultSegmentSize)
	return &state{Store: store, Writer: newName(), SegmentSize: size, Begin: d.local.Begin()}
}

func (d *Device) checkSize() error {
	if want, have := d.opts.SegmentSize, d.state.SegmentSize; want != 0 && want != have {
		return fmt.Errorf("%w: the store has segments of %d bytes, Options.SegmentSize is %d", ErrFormat, have, want)
	}
	return nil
}

// belongs returns an error if a catalog does not belong to the device's state. The caller holds mu,
// or is Open.
func (d *Device) belongs(c *catalog) error {
	switch {
	case c == nil && d.state.Restored:
		return fmt.Errorf("%w: the bucket is empty, but it alone had a part of the log", ErrForeign)
	case c == nil && d.state.Uploaded: // everything is uploaded again
		return d.change(func(s *state) { s.Uploaded = false })
	case c == nil:
		return nil // nothing was uploaded yet
	case c.Store != d.state.Store:
		return fmt.Errorf("%w: the bucket has store %s, the device %s", ErrForeign, c.Store, d.state.Store)
	case c.Writer != d.state.Writer && c.Number > d.state.Number:
		return fmt.Errorf("%w: it has stored catalog %d", ErrTaken, c.Number)
	case c.SegmentSize != d.state.SegmentSize:
		return fmt.Errorf("%w: the bucket has segments of %d bytes, the device of %d", ErrFormat, c.SegmentSize, d.state.SegmentSize)
	}
	return nil
}

// checkEmpty returns an error if the device already has another store.
func (d *Device) checkEmpty(c *catalog) error {
	objects, err := d.local.ListObjects()
	if err != nil {
		return err
	}
	what := ""
	switch {
	case d.local.Begin() != 0:
		what = "a log"
	case len(objects) > 0:
		what = "object " + objects[0]
	}
	for name := range c.Meta {
		if _, err := d.local.ReadMeta(name); err == nil {
			what = "metadata " + name
		} else if !errors.Is(err, device.ErrNoMeta) {
			return fmt.Errorf("blob: %w", err)
		}
	}
	if what != "" {
		return fmt.Errorf("%w: the device holds %s, but was never used with a bucket, and the bucket holds a store: use an empty device or an empty bucket", ErrForeign, what)
	}
	return nil
}

// restore fetches metadata and objects. If it is interrupted, the next Open repeats it.
func (d *Device) restore(ctx context.Context, c *catalog) error {
	s := d.state
	s.Restoring, s.Restored, s.Uploaded, s.Begin, s.Number = true, true, true, c.Begin, c.Number
	s.Meta = slices.AppendSeq(s.Meta[:0], maps.Keys(c.Meta))
	if err := s.store(d.local); err != nil {
		return err
	}
	for name, o := range c.Objects {
		if err := d.bucket.fetchObject(ctx, d.local, name, o); err != nil {
			return fmt.Errorf("blob: object %s: %w", name, err)
		}
	}
	for name, data := range c.Meta {
		if err := d.local.WriteMeta(name, data); err != nil {
			return fmt.Errorf("blob: metadata %s: %w", name, err)
		}
	}
	s.Restoring = false
	if err := s.store(d.local); err != nil {
		return err
	}
	d.opts.Logger.Info("store restored from the bucket", "catalog", c.Number, "metadata", len(c.Meta), "objects", len(c.Objects))
	return nil
}
