package smb

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/redykv/redykv/device"
)

// objects maps objects to files. An open file can be neither replaced nor removed, so each
// object gets a new file, and the file OBJECTS, which is replaced whole, has one line for
// each object. Guarded by Device.change.
type objects struct {
	byName map[string]*object
	next   int64 // number of the next file
}

// object is an object's file, for as long as it has a name or a reader.
type object struct {
	file    file
	number  int64
	size    int64
	readers int
	named   bool
}

const catalogLine = "%d %d %s\n" // number, size, name

// has reports whether a file is an object's.
func (o *objects) has(number int64) bool {
	for _, obj := range o.byName {
		if obj.number == number {
			return true
		}
	}
	return false
}

// parseCatalog reads the file OBJECTS. It is not ok unless each line has the form of
// catalogLine.
func parseCatalog(data []byte) (map[string]*object, bool) {
	byName := make(map[string]*object)
	for line := range strings.Lines(string(data)) {
		var name string
		obj := &object{named: true}
		_, err := fmt.Sscanf(line, catalogLine, &obj.number, &obj.size, &name)
		if err != nil || obj.number < 0 || obj.size < 0 || device.CheckName(name) != nil || byName[name] != nil ||
			line != fmt.Sprintf(catalogLine, obj.number, obj.size, name) {
			return nil, false
		}
		obj.file.name = objectName(obj.number)
		obj.file.made.Store(true)
		byName[name] = obj
	}
	return byName, true
}

// loadCatalog loads the file OBJECTS.
func (d *Device) loadCatalog() error {
	data, err := d.readFile(catalogName)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	byName, ok := parseCatalog(data)
	if !ok {
		return fmt.Errorf("%w: %s: file %s is damaged, restore it: %w", ErrFormat, d.opts.place(), catalogName, device.ErrCorrupt)
	}
	d.objects.byName = byName
	return nil
}

// rename assigns a name to an object, or to none, and removes the file of the previous object
// if it has no reader. The caller holds change.
func (d *Device) rename(name string, to *object) error {
	next := maps.Clone(d.objects.byName)
	old := next[name]
	if to == nil {
		delete(next, name)
	} else {
		next[name] = to
	}
	var text []byte
	for _, name := range slices.Sorted(maps.Keys(next)) {
		text = fmt.Appendf(text, catalogLine, next[name].number, next[name].size, name)
	}
	if err := d.replaceFile(catalogName, text); err != nil {
		return err
	}
	d.objects.byName = next
	if to != nil {
		to.named = true
	}
	if old != nil {
		old.named = false
		return d.removeUnused(old)
	}
	return nil
}

// removeUnused removes an object's file unless it has a name or a reader. The caller holds
// change.
func (d *Device) removeUnused(obj *object) error {
	if obj.named || obj.readers > 0 {
		return nil
	}
	obj.file.gone.Store(true)
	d.trash = append(d.trash, &obj.file)
	return d.sweep()
}

// CreateObject implements device.Objects.
func (d *Device) CreateObject(name string) (device.ObjectWriter, error) {
	if err := checkName("object", name); err != nil {
		return nil, err
	}
	d.change.Lock()
	defer d.change.Unlock()
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	obj := &object{number: d.objects.next}
	obj.file.name = objectName(obj.number)
	d.objects.next++
	return &objectWriter{d: d, name: name, obj: obj}, nil
}

// OpenObject implements device.Objects.
func (d *Device) OpenObject(name string) (device.Object, error) {
	if err := checkName("object", name); err != nil {
		return nil, err
	}
	d.change.Lock()
	defer d.change.Unlock()
	obj := d.objects.byName[name]
	switch {
	case d.closed.Load():
		return nil, device.ErrClosed
	case obj == nil:
		return nil, fmt.Errorf("%s: %q: %w", d.opts.place(), name, device.ErrNoObject)
	}
	obj.readers++
	return &objectReader{d: d, obj: obj}, nil
}

// RemoveObject implements device.Objects.
func (d *Device) RemoveObject(name string) error {
	if err := checkName("object", name); err != nil {
		return err
	}
	d.change.Lock()
	defer d.change.Unlock()
	switch {
	case d.closed.Load():
		return device.ErrClosed
	case d.objects.byName[name] == nil:
		return fmt.Errorf("%s: %q: %w", d.opts.place(), name, device.ErrNoObject)
	}
	return d.rename(name, nil)
}

// ListObjects implements device.Objects.
func (d *Device) ListObjects() ([]string, error) {
	d.change.Lock()
	defer d.change.Unlock()
	if d.closed.Load() {
		return nil, device.ErrClosed
	}
	return slices.Sorted(maps.Keys(d.objects.byName)), nil
}

// objectBuffer is the size of an object's writes.
const objectBuffer = 1 << 20

// objectWriter writes an object.
type objectWriter struct {
	d    *Device
	name string
	obj  *object
	buf  []byte // not written to the file yet
	err  error  // of the write that failed
	over bool
}

func (w *objectWriter) Write(p []byte) (int, error) {
	if w.over {
		return 0, device.ErrClosed
	}
	written := 0
	for written < len(p) && w.err == nil {
		n := min(len(p)-written, objectBuffer-len(w.buf))
		w.buf = append(w.buf, p[written:written+n]...)
		written += n
		if len(w.buf) == objectBuffer {
			w.flush()
		}
	}
	return written, w.err
}

// flush writes the buffer. If it is empty, flush only creates the file.
func (w *objectWriter) flush() {
	if w.err != nil {
		return
	}
	flags := 0
	if !w.obj.file.made.Load() {
		flags = os.O_CREATE | os.O_TRUNC
	}
	if err := w.d.askFile(true, &w.obj.file, flags, writing(w.buf, w.obj.size)); err != nil {
		w.err = w.d.named("write of object "+w.name, err)
		return
	}
	w.obj.file.made.Store(true)
	w.obj.size += int64(len(w.buf))
	w.buf = w.buf[:0]
}

func (w *objectWriter) Commit() error {
	if w.over {
		return device.ErrClosed
	}
	w.flush()
	if w.err != nil {
		return errors.Join(w.err, w.Abort())
	}
	w.over, w.buf = true, nil
	d := w.d
	d.change.Lock()
	defer d.change.Unlock()
	if d.closed.Load() {
		return device.ErrClosed // the next Open removes the file
	}
	err := d.syncFile(&w.obj.file)
	if err == nil {
		err = d.rename(w.name, w.obj)
	}
	if err != nil && !w.obj.named && !errors.Is(err, ErrDoubt) { // after ErrDoubt it may have the name
		err = errors.Join(err, d.removeUnused(w.obj))
	}
	return err
}

func (w *objectWriter) Abort() error {
	if w.over {
		return nil
	}
	w.over, w.buf = true, nil
	d := w.d
	d.change.Lock()
	defer d.change.Unlock()
	if d.closed.Load() || !w.obj.file.made.Load() && w.err == nil {
		return nil // another Device may have the directory, or there is no file
	}
	return d.removeUnused(w.obj)
}

// objectReader is one opening of an object.
type objectReader struct {
	d     *Device
	obj   *object
	close sync.Once
}

func (r *objectReader) Size() int64 { return r.obj.size }

func (r *objectReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("smb: %s: read of %s at offset %d", r.d.opts.place(), r.obj.file.name, off)
	}
	if off >= r.obj.size {
		return 0, io.EOF
	}
	want := int(min(int64(len(p)), r.obj.size-off))
	if err := r.d.read(&r.obj.file, p[:want], off); err != nil {
		if errors.Is(err, device.ErrNotHeld) {
			err = fmt.Errorf("%w: %w", device.ErrCorrupt, err) // the file is shorter than in OBJECTS
		}
		return 0, err
	}
	if want < len(p) {
		return want, io.EOF
	}
	return want, nil
}

// Close implements io.Closer. The last reader of an object without a name removes it.
func (r *objectReader) Close() (err error) {
	r.close.Do(func() {
		d := r.d
		d.change.Lock()
		defer d.change.Unlock()
		r.obj.readers--
		if !d.closed.Load() {
			err = d.removeUnused(r.obj)
		}
	})
	return err
}
