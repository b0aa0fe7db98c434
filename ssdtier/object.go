package ssdtier

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/redykv/redykv/device"
)

// objectPrefix begins the name of an object's file.
const objectPrefix = "object."

// objectBuffer is the size of an object's writes to its file.
const objectBuffer = 1 << 20

// CreateObject implements device.Objects. An object is written through the page
// cache to a file of another name, which Commit gives its own.
func (d *Device) CreateObject(name string) (device.ObjectWriter, error) {
	if err := device.CheckName(name); err != nil {
		return nil, fmt.Errorf("ssdtier: object: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, device.ErrClosed
	}
	d.objectsMade++
	temp := fmt.Sprintf("%s%s.%d%s", objectPrefix, name, d.objectsMade, tempSuffix)
	f, err := os.Create(d.path(temp))
	if err != nil {
		return nil, fmt.Errorf("ssdtier: %w", err)
	}
	return &objectWriter{d: d, path: d.path(objectPrefix + name), file: f, buf: bufio.NewWriterSize(f, objectBuffer)}, nil
}

// objectWriter is an object that is being made, in a file that has a temporary
// name. It ends with file set to nil.
type objectWriter struct {
	d    *Device
	path string // of the object
	file *os.File
	buf  *bufio.Writer
}

// Write implements io.Writer. The buffer remembers an error.
func (w *objectWriter) Write(p []byte) (int, error) {
	if w.file == nil {
		return 0, device.ErrClosed
	}
	n, err := w.buf.Write(p)
	if err != nil {
		return n, fmt.Errorf("ssdtier: write of %s: %w", w.path, err)
	}
	return n, nil
}

// Commit implements device.ObjectWriter.
func (w *objectWriter) Commit() error {
	if w.file == nil {
		return device.ErrClosed
	}
	if err := errors.Join(w.buf.Flush(), w.file.Sync()); err != nil {
		return errors.Join(fmt.Errorf("ssdtier: commit of %s: %w", w.path, err), w.Abort())
	}
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	f := w.file
	w.file, w.buf = nil, nil
	if w.d.closed {
		_ = f.Close() // the directory may be somebody else's by now
		return device.ErrClosed
	}
	err := f.Close()
	if err == nil {
		err = os.Rename(f.Name(), w.path)
	}
	if err != nil {
		return fmt.Errorf("ssdtier: commit of %s: %w", w.path, errors.Join(err, os.Remove(f.Name())))
	}
	return syncDir(w.d.dir)
}

// Abort implements device.ObjectWriter.
func (w *objectWriter) Abort() error {
	if w.file == nil {
		return nil
	}
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	f := w.file
	w.file, w.buf = nil, nil
	_ = f.Close() // its bytes are not wanted
	if w.d.closed {
		return nil // the directory may be somebody else's, who removes the file
	}
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("ssdtier: %w", err)
	}
	return nil
}

// OpenObject implements device.Objects.
func (d *Device) OpenObject(name string) (device.Object, error) {
	if err := device.CheckName(name); err != nil {
		return nil, fmt.Errorf("ssdtier: object: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, device.ErrClosed
	}
	f, err := os.Open(d.path(objectPrefix + name))
	if err != nil {
		return nil, objectError(err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // it was only read
		return nil, fmt.Errorf("ssdtier: %w", err)
	}
	return &object{file: f, size: info.Size()}, nil
}

// objectError tells a missing object from other troubles with its file.
func objectError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", device.ErrNoObject, err)
	}
	return fmt.Errorf("ssdtier: %w", err)
}

// RemoveObject implements device.Objects.
func (d *Device) RemoveObject(name string) error {
	if err := device.CheckName(name); err != nil {
		return fmt.Errorf("ssdtier: object: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return device.ErrClosed
	}
	if err := os.Remove(d.path(objectPrefix + name)); err != nil {
		return objectError(err)
	}
	return syncDir(d.dir)
}

// ListObjects implements device.Objects.
func (d *Device) ListObjects() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, device.ErrClosed
	}
	entries, err := os.ReadDir(d.dir) // in order
	if err != nil {
		return nil, fmt.Errorf("ssdtier: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), objectPrefix); ok && device.CheckName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// object is an open file of an object.
type object struct {
	file *os.File
	size int64
}

// Size implements device.Object.
func (o *object) Size() int64 { return o.size }

// ReadAt implements io.ReaderAt.
func (o *object) ReadAt(p []byte, off int64) (int, error) { return o.file.ReadAt(p, off) }

// Close implements io.Closer.
func (o *object) Close() error { return o.file.Close() }
