// Package slots numbers what a queue has under way, for queues over other queues: the
// number is the tag of an operation there. Drain is for any queue's Close.
package slots

import "github.com/redykv/redykv/device"

// Table has a fixed number of slots. It is one goroutine's.
type Table[T any] struct {
	slots []T
	free  []uint64
}

// New returns a table of n slots, all of them free.
func New[T any](n int) Table[T] {
	t := Table[T]{slots: make([]T, n), free: make([]uint64, n)}
	for i := range t.free {
		t.free[i] = uint64(n - 1 - i)
	}
	return t
}

// Take fills a free slot and returns its number, or [device.ErrQueueFull].
func (t *Table[T]) Take(x T) (uint64, error) {
	if len(t.free) == 0 {
		return 0, device.ErrQueueFull
	}
	n := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.slots[n] = x
	return n, nil
}

// At is slot n, which was taken.
func (t *Table[T]) At(n uint64) *T { return &t.slots[n] }

// Has says whether there is a slot n.
func (t *Table[T]) Has(n uint64) bool { return n < uint64(len(t.slots)) }

// Release frees slot n.
func (t *Table[T]) Release(n uint64) {
	var none T
	t.slots[n] = none
	t.free = append(t.free, n)
}

// Used is how many slots are taken.
func (t *Table[T]) Used() int { return len(t.slots) - len(t.free) }
