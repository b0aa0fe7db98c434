package queue

// freeNumbers are the numbers of a fixed set that are not in use. Those freed last are
// taken first, so that their memory is likely to be cached.
type freeNumbers []uint32

func newFreeNumbers(n int) freeNumbers {
	free := make(freeNumbers, n)
	for i := range free {
		free[i] = uint32(n - 1 - i)
	}
	return free
}

func (f *freeNumbers) take() (n uint32, ok bool) {
	last := len(*f) - 1
	if last < 0 {
		return 0, false
	}
	n = (*f)[last]
	*f = (*f)[:last]
	return n, true
}

// Pending numbers the pending operations of a queue over other queues: the number is the
// tag of the operation there. It belongs to the goroutine of the queue.
type Pending[T any] struct {
	entries []T
	free    freeNumbers
}

// NewPending returns an empty table of at most n operations.
func NewPending[T any](n int) Pending[T] {
	return Pending[T]{entries: make([]T, n), free: newFreeNumbers(n)}
}

// Add stores x and returns its number; ok is false if the table is full.
func (p *Pending[T]) Add(x T) (n uint64, ok bool) {
	number, ok := p.free.take()
	if ok {
		p.entries[number] = x
	}
	return uint64(number), ok
}

// At returns entry n, which was added.
func (p *Pending[T]) At(n uint64) *T { return &p.entries[n] }

// Has reports whether n is a number of this table.
func (p *Pending[T]) Has(n uint64) bool { return n < uint64(len(p.entries)) }

// Remove clears and frees entry n.
func (p *Pending[T]) Remove(n uint64) {
	var none T
	p.entries[n] = none
	p.free = append(p.free, uint32(n))
}

// Len is the number of operations in the table.
func (p *Pending[T]) Len() int { return len(p.entries) - len(p.free) }
