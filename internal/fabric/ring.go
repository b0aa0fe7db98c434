package fabric

import "math/bits"

// ring is a queue of a wrapper's operations or completions. Entries are numbered from 0;
// those in [head, tail) are in the ring.
type ring[T any] struct {
	slots      []T
	mask       uint64
	head, tail uint64
}

// newRing returns a ring for n entries. The caller does not add more.
func newRing[T any](n int) ring[T] {
	size := 1 << bits.Len(uint(n-1))
	return ring[T]{slots: make([]T, size), mask: uint64(size - 1)}
}

func (r *ring[T]) at(i uint64) *T { return &r.slots[i&r.mask] }

func (r *ring[T]) push(v T) {
	*r.at(r.tail) = v
	r.tail++
}

func (r *ring[T]) len() uint64 { return r.tail - r.head }
