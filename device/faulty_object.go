package device

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// CreateObject implements Objects.
func (f *Faulty) CreateObject(name string) (ObjectWriter, error) {
	if err := f.gate("create object"); err != nil {
		return nil, err
	}
	inner, err := f.inner.CreateObject(name)
	if err != nil {
		return nil, err
	}
	w := &faultyObjectWriter{f: f, name: name, inner: inner}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed.Load() { // a Crash during CreateObject, whose dropObjects may have run
		return nil, errors.Join(ErrClosed, inner.Abort())
	}
	f.making[w] = struct{}{}
	return w, nil
}

// OpenObject implements Objects.
func (f *Faulty) OpenObject(name string) (Object, error) {
	if err := f.gate("open object"); err != nil {
		return nil, err
	}
	inner, err := f.inner.OpenObject(name)
	if err != nil {
		return nil, err
	}
	return &faultyObject{f: f, name: name, Object: inner}, nil
}

// RemoveObject implements Objects; it is durable at once.
func (f *Faulty) RemoveObject(name string) error {
	if err := f.gate("remove object"); err != nil {
		return err
	}
	return f.inner.RemoveObject(name)
}

// ListObjects implements Objects.
func (f *Faulty) ListObjects() ([]string, error) {
	if err := f.gate("list objects"); err != nil {
		return nil, err
	}
	return f.inner.ListObjects()
}

// dropObjects aborts the unfinished objects. No more can be created by then.
func (f *Faulty) dropObjects() error {
	f.mu.Lock()
	making := slices.Collect(maps.Keys(f.making))
	f.mu.Unlock()
	var errs []error
	for _, w := range making {
		errs = append(errs, w.Abort())
	}
	return errors.Join(errs...)
}

// faultyObjectWriter writes an object, with faults.
type faultyObjectWriter struct {
	f    *Faulty
	name string

	mu    sync.Mutex // guards the fields below against a Crash; taken before Faulty.mu
	inner ObjectWriter
	err   error // of the Write that failed
	over  bool
}

func (w *faultyObjectWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admit("write"); err != nil {
		return 0, err
	}
	if w.err != nil {
		return 0, w.err
	}
	o := w.f.opts.Load()
	k := w.f.writes.Add(1)
	switch {
	case k == o.FailWrite || w.f.chance(o.WriteError):
		w.err = fmt.Errorf("write of %d bytes to object %q: %w", len(p), w.name, ErrFault)
		return 0, w.err
	case w.f.chance(o.TornWrite):
		w.f.mu.Lock()
		n := w.f.rand.IntN(len(p) + 1)
		w.f.mu.Unlock()
		w.err = fmt.Errorf("torn write of %d bytes to object %q: %w", len(p), w.name, ErrFault)
		n, err := w.inner.Write(p[:n])
		return n, errors.Join(w.err, err)
	case w.f.chance(o.LostWrite):
		p = make([]byte, len(p))
	}
	return w.inner.Write(p)
}

func (w *faultyObjectWriter) Commit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admit("commit object"); err != nil {
		return err
	}
	fault := w.err
	if fault == nil && w.f.chance(w.f.opts.Load().SyncError) {
		fault = fmt.Errorf("commit of object %q: %w", w.name, ErrFault)
		if w.f.chance(0.5) {
			return errors.Join(fault, w.end(w.inner.Commit))
		}
	}
	if fault != nil {
		return errors.Join(fault, w.end(w.inner.Abort))
	}
	return w.end(w.inner.Commit)
}

// Abort implements ObjectWriter. A crash calls it too.
func (w *faultyObjectWriter) Abort() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return nil
	}
	return w.end(w.inner.Abort)
}

// admit returns an error if the writer has ended. The caller holds mu.
func (w *faultyObjectWriter) admit(what string) error {
	if w.over {
		return fmt.Errorf("%s %q: %w", what, w.name, ErrClosed)
	}
	return w.f.gate(what)
}

// end ends the inner writer by Commit or Abort. The caller holds mu.
func (w *faultyObjectWriter) end(by func() error) error {
	w.over = true
	w.f.mu.Lock()
	delete(w.f.making, w)
	w.f.mu.Unlock()
	return by()
}

// faultyObject is an object whose reads may fail.
type faultyObject struct {
	f    *Faulty
	name string
	Object
}

func (o *faultyObject) ReadAt(p []byte, off int64) (int, error) {
	if err := o.f.gate("read object"); err != nil {
		return 0, err
	}
	opts := o.f.opts.Load()
	if k := o.f.reads.Add(1); k == opts.FailRead || o.f.chance(opts.ReadError) {
		return 0, fmt.Errorf("read of %d bytes at %d of object %q: %w", len(p), off, o.name, ErrFault)
	}
	return o.Object.ReadAt(p, off)
}
