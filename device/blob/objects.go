package blob

import (
	"slices"

	"github.com/redykv/redykv/device"
)

// CreateObject implements device.Objects, on the local device.
func (d *Device) CreateObject(name string) (device.ObjectWriter, error) {
	w, err := d.local.CreateObject(name)
	if err != nil {
		return nil, err
	}
	return &objectWriter{ObjectWriter: w, d: d, name: name}, nil
}

// OpenObject implements device.Objects, on the local device, which has all of them.
func (d *Device) OpenObject(name string) (device.Object, error) { return d.local.OpenObject(name) }

// ListObjects implements device.Objects, on the local device.
func (d *Device) ListObjects() ([]string, error) { return d.local.ListObjects() }

// RemoveObject implements device.Objects, on the local device. The bucket follows.
func (d *Device) RemoveObject(name string) error {
	d.ordering.Lock()
	defer d.ordering.Unlock()
	if err := d.local.RemoveObject(name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed()
	return nil
}

// objectWriter writes an object to the local device.
type objectWriter struct {
	device.ObjectWriter
	d    *Device
	name string
}

// Commit implements device.ObjectWriter. It first records that the name stands for another
// object from now on, since the bucket may have the old one.
func (w *objectWriter) Commit() error {
	d := w.d
	d.ordering.Lock()
	defer d.ordering.Unlock()
	if err := d.replacing(w.name); err != nil {
		return err
	}
	if err := w.ObjectWriter.Commit(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed()
	return nil
}

// replacing records that an object is being replaced, if the bucket may have it, or may get it with the
// snapshot that is being uploaded.
func (d *Device) replacing(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := slices.Contains(d.up.taken, name)
	if c := d.catalog.Load(); c != nil && !taken {
		if _, there := c.Objects[name]; !there {
			return nil
		}
	}
	if taken {
		d.up.replaced = append(d.up.replaced, name)
	}
	if slices.Contains(d.state.Replaced, name) {
		return nil
	}
	return d.change(func(s *state) { s.Replaced = append(s.Replaced, name) })
}
