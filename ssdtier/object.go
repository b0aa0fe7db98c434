package ssdtier

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/redykv/redykv/device"
)

// CreateObject implements device.Objects. An object is written to a file with a temporary name,
// by direct I/O as segments are; Commit renames it.
func (d *Device) CreateObject(name string) (device.ObjectWriter, error) {
	if err := device.CheckName(name); err != nil {
		return nil, fmt.Errorf("ssdtier: object: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	d.objectsMade++
	temp := fmt.Sprintf("%s%s.%d%s", objectPrefix, name, d.objectsMade, tempSuffix)
	var f *os.File
	err := d.withSpace(func() (err error) {
		f, err = openFile(d.path(temp), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|d.directFlag, 0o666)
		return err
	})
	if err != nil {
		return nil, wrap(err)
	}
	return &objectWriter{
		d: d, path: d.path(objectPrefix + name), file: f,
		buf: device.AlignedBuffer(objectBuffer, d.block)[:0],
	}, nil
}

// OpenObject implements device.Objects.
func (d *Device) OpenObject(name string) (device.Object, error) {
	if err := device.CheckName(name); err != nil {
		return nil, fmt.Errorf("ssdtier: object: %w", err)
	}
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	return openObject(d.path(objectPrefix + name))
}

// objectError distinguishes a missing object from other errors of its file.
func objectError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", device.ErrNoObject, err)
	}
	return wrap(err)
}

// RemoveObject implements device.Objects.
func (d *Device) RemoveObject(name string) error {
	if err := device.CheckName(name); err != nil {
		return fmt.Errorf("ssdtier: object: %w", err)
	}
	path := d.path(objectPrefix + name)
	if f, err := os.Open(path); err == nil {
		defer func() { _ = f.Close() }() // frees the space: after mu is unlocked, so that no commit waits for it
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return device.ErrClosed
	}
	if err := cmp.Or(d.lacks(), d.comeHome()); err != nil { // an older commit may need it
		return err
	}
	if err := os.Remove(path); err != nil {
		return objectError(err)
	}
	return d.syncNames()
}

// ListObjects implements device.Objects.
func (d *Device) ListObjects() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	return listObjects(d.dir)
}
