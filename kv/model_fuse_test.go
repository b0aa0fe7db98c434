package kv

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redykv/redykv/device"
)

// Errors of a fuse.
var (
	errPower = errors.New("the power is off")
	errOnce  = errors.New("failed for once")
)

// fuse is a device whose power fails at the k-th operation, or that fails only this operation.
// Operations are reads, writes, syncs, and all operations on metadata and objects. Without
// power nothing reaches the device below, which belongs to the creator of the fuse.
type fuse struct {
	device.Device
	left  atomic.Int64 // operations until the failure
	once  atomic.Bool  // only one operation fails
	half  atomic.Bool  // the failing operation may be done, completely or partly
	off   atomic.Bool  // the power is off
	fired atomic.Bool  // the failure has happened
}

// arm makes the k-th operation from now fail; none if k is 0.
func (f *fuse) arm(k int, once bool) {
	f.once.Store(once)
	f.half.Store(k%2 == 0)
	f.fired.Store(false)
	f.left.Store(int64(k))
}

func (f *fuse) blow() { f.off.Store(true) }

// burn counts an operation, and returns its error, if any. half means that it may have been
// done, completely or partly.
func (f *fuse) burn() (half bool, err error) {
	if f.off.Load() {
		return false, errPower
	}
	if f.left.Add(-1) != 0 {
		return false, nil
	}
	f.fired.Store(true)
	if f.once.Load() {
		return f.half.Load(), errOnce
	}
	f.blow()
	return f.half.Load(), errPower
}

// do executes an operation.
func (f *fuse) do(operation func() error) error {
	half, err := f.burn()
	if err == nil {
		return operation()
	}
	if half {
		return errors.Join(err, operation())
	}
	return err
}

func (f *fuse) Start(tail int64) error {
	return f.do(func() error { return f.Device.Start(tail) })
}
func (f *fuse) Prepare(tail int64) error {
	return f.do(func() error { return device.Prepare(f.Device, tail) })
}
func (f *fuse) Truncate(begin int64) error {
	return f.do(func() error { return f.Device.Truncate(begin) })
}
func (f *fuse) Sync() error { return f.do(f.Device.Sync) }
func (f *fuse) WriteMeta(name string, data []byte) error {
	return f.do(func() error { return f.Device.WriteMeta(name, data) })
}
func (f *fuse) RemoveObject(name string) error {
	return f.do(func() error { return f.Device.RemoveObject(name) })
}

func (f *fuse) ReadMeta(name string) ([]byte, error) {
	if _, err := f.burn(); err != nil {
		return nil, err
	}
	return f.Device.ReadMeta(name)
}

func (f *fuse) ListObjects() ([]string, error) {
	if _, err := f.burn(); err != nil {
		return nil, err
	}
	return f.Device.ListObjects()
}

func (f *fuse) Close() error {
	if f.off.Load() {
		return errPower
	}
	return f.Device.Close()
}

func (f *fuse) CreateObject(name string) (device.ObjectWriter, error) {
	if _, err := f.burn(); err != nil {
		return nil, err
	}
	w, err := f.Device.CreateObject(name)
	return &fuseWriter{f, w}, err
}

type fuseWriter struct {
	f *fuse
	w device.ObjectWriter
}

func (w *fuseWriter) Write(p []byte) (int, error) {
	if _, err := w.f.burn(); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}
func (w *fuseWriter) Commit() error { return w.f.do(w.w.Commit) }
func (w *fuseWriter) Abort() error {
	if w.f.off.Load() {
		return errPower
	}
	return w.w.Abort()
}

func (f *fuse) OpenObject(name string) (device.Object, error) {
	if _, err := f.burn(); err != nil {
		return nil, err
	}
	o, err := f.Device.OpenObject(name)
	return &fuseObject{o, f}, err
}

type fuseObject struct {
	device.Object
	f *fuse
}

func (o *fuseObject) ReadAt(p []byte, off int64) (int, error) {
	if _, err := o.f.burn(); err != nil {
		return 0, err
	}
	return o.Object.ReadAt(p, off)
}

func (f *fuse) NewQueue(depth int) (device.Queue, error) {
	if f.off.Load() {
		return nil, errPower
	}
	q, err := f.Device.NewQueue(depth)
	return &fuseQueue{Queue: q, f: f, torn: make(map[uint64]error)}, err
}

// fuseQueue completes failed operations itself; the device below does not see them.
type fuseQueue struct {
	device.Queue
	f     *fuse
	ended []device.Completion
	torn  map[uint64]error // by tag: the error of a write that was done partly
}

func (q *fuseQueue) Read(dst []byte, addr int64, tag uint64) error {
	_, err := q.f.burn()
	if err == nil {
		return q.Queue.Read(dst, addr, tag)
	}
	q.ended = append(q.ended, device.Completion{Tag: tag, Err: err})
	return nil
}

func (q *fuseQueue) Write(src []byte, addr int64, tag uint64) error {
	half, err := q.f.burn()
	if err == nil {
		return q.Queue.Write(src, addr, tag)
	}
	if part := len(src) / 2 &^ (q.f.Alignment() - 1); half && part > 0 {
		if e := q.Queue.Write(src[:part], addr, tag); e != nil {
			return e
		}
		q.torn[tag] = err
		return nil
	}
	q.ended = append(q.ended, device.Completion{Tag: tag, Err: err})
	return nil
}

func (q *fuseQueue) Poll(done []device.Completion) int {
	n := copy(done, q.ended)
	q.ended = q.ended[n:]
	below := q.Queue.Poll(done[n:])
	for i := range done[n : n+below] {
		c := &done[n+i]
		if err, ok := q.torn[c.Tag]; ok {
			c.Err = err
			if c.Event != device.Committed {
				delete(q.torn, c.Tag)
			}
		}
	}
	return n + below
}

func (q *fuseQueue) Wait(ctx context.Context) error {
	if len(q.ended) > 0 {
		return nil
	}
	return q.Queue.Wait(ctx)
}
