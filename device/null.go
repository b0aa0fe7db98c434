package device

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Null is a Device that accepts every write and holds nothing: its Begin is the end of what
// was written. It is for measuring the cost of a log without its storage.
type Null struct {
	NoObjects
	end atomic.Int64
}

// NewNull returns a Null.
func NewNull() *Null { return new(Null) }

// Start implements Device.
func (d *Null) Start(tail int64) error {
	if err := checkRange(0, tail); err != nil {
		return err
	}
	d.end.Store(tail)
	return nil
}

// NewQueue implements Device.
func (d *Null) NewQueue(depth int) (Queue, error) {
	if err := checkDepth(depth); err != nil {
		return nil, err
	}
	return &nullQueue{instantQueue: instantQueue{done: newCompletions(depth)}, d: d}, nil
}

// Alignment implements Device.
func (d *Null) Alignment() int { return 1 }

// Begin implements Device.
func (d *Null) Begin() int64 { return d.end.Load() }

// Truncate implements Device.
func (d *Null) Truncate(begin int64) error {
	if err := checkRange(0, begin); err != nil {
		return err
	}
	raise(&d.end, begin)
	return nil
}

// Sync implements Device; it does nothing.
func (d *Null) Sync() error { return nil }

// WriteMeta implements Device.
func (d *Null) WriteMeta(name string, _ []byte) error {
	return fmt.Errorf("device: metadata %q on a null device: %w", name, errors.ErrUnsupported)
}

// ReadMeta implements Device.
func (d *Null) ReadMeta(name string) ([]byte, error) {
	return nil, fmt.Errorf("%q: %w", name, ErrNoMeta)
}

// Close implements Device.
func (d *Null) Close() error { return nil }

type nullQueue struct {
	instantQueue
	d *Null
}

func (q *nullQueue) Read(dst []byte, addr int64, tag uint64) error {
	if err := q.admit(); err != nil {
		return err
	}
	q.finish(tag, 0, fmt.Errorf("null device: %d bytes at %d: %w", len(dst), addr, ErrNotHeld))
	return nil
}

func (q *nullQueue) Write(src []byte, addr int64, tag uint64) error {
	if err := q.admit(); err != nil {
		return err
	}
	err := checkRange(len(src), addr)
	if err == nil {
		raise(&q.d.end, addr+int64(len(src)))
	}
	q.finish(tag, len(src), err)
	return nil
}
