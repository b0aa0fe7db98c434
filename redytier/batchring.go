package redytier

import "sync/atomic"

// batchRing carries requests from any goroutine to one client thread without
// locks (R43). It is a bounded queue of cells, each with a turn that says whose
// it is: position p belongs to the producer that claims p while its turn is p,
// to the consumer while it is p+1, and the consumer passes it on to the producer
// of p+len by setting that. A producer claims a position by compare-and-swap of
// tail; storing the turn publishes the request.
type batchRing struct {
	cells []cell
	_     [64]byte
	tail  atomic.Uint64 // next position to claim
	_     [64]byte
	head  uint64 // the consumer's
}

type cell struct {
	turn atomic.Uint64
	call call
}

// newBatchRing returns a ring of size cells, a power of two.
func newBatchRing(size int) *batchRing {
	r := &batchRing{cells: make([]cell, size)}
	for i := range r.cells {
		r.cells[i].turn.Store(uint64(i))
	}
	return r
}

// push adds a call, or returns false if the ring is full. Any goroutine.
func (r *batchRing) push(c call) bool {
	for {
		pos := r.tail.Load()
		cell := &r.cells[pos&uint64(len(r.cells)-1)]
		switch turn := cell.turn.Load(); {
		case turn == pos:
			if r.tail.CompareAndSwap(pos, pos+1) {
				cell.call = c
				cell.turn.Store(pos + 1)
				return true
			}
		case turn < pos:
			return false // not consumed since the last time around
		}
	}
}

// peek returns the oldest call, or nil. The consumer only; it stays in the ring.
func (r *batchRing) peek() *call {
	cell := &r.cells[r.head&uint64(len(r.cells)-1)]
	if cell.turn.Load() != r.head+1 {
		return nil
	}
	return &cell.call
}

// drop removes the call that peek returned.
func (r *batchRing) drop() {
	cell := &r.cells[r.head&uint64(len(r.cells)-1)]
	cell.call = call{}
	cell.turn.Store(r.head + uint64(len(r.cells)))
	r.head++
}
