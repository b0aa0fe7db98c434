package redytier

import "math/bits"

// fifo is a queue of bounded size that allocates once. The caller must not push to a full
// one.
type fifo[T any] struct {
	items      []T
	head, tail uint64 // items [head, tail) are queued
}

// newFIFO returns a queue of at least size items.
func newFIFO[T any](size int) fifo[T] {
	return fifo[T]{items: make([]T, 1<<bits.Len(uint(size-1)))}
}

func (f *fifo[T]) len() int   { return int(f.tail - f.head) }
func (f *fifo[T]) full() bool { return f.len() == len(f.items) }

func (f *fifo[T]) push(v T) {
	f.items[f.tail&uint64(len(f.items)-1)] = v
	f.tail++
}

// add is push of an item that the caller fills in place; it may hold old values.
func (f *fifo[T]) add() *T {
	f.tail++
	return &f.items[(f.tail-1)&uint64(len(f.items)-1)]
}

// front is the oldest item, in place.
func (f *fifo[T]) front() *T { return &f.items[f.head&uint64(len(f.items)-1)] }

// pop removes the oldest item.
func (f *fifo[T]) pop() T {
	p := f.front()
	v := *p
	var zero T
	*p = zero // drop references to buffers
	f.head++
	return v
}
