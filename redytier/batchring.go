package redytier

import (
	"sync"
	"sync/atomic"
)

// batchRing is a FIFO queue of calls from any goroutine to one client thread.
type batchRing interface {
	// push adds a call. Any goroutine.
	push(c call) pushed
	// peek returns the oldest call, or nil; it stays in the ring. The consumer only.
	peek() *call
	// drop removes the call that peek returned. The consumer only.
	drop()
	// close makes every later push return pushClosed. Any goroutine.
	close()
	// empty reports that no call is in the ring, and none is being pushed. The consumer only.
	empty() bool
	// drained reports that the ring is closed and empty. The consumer only.
	drained() bool
}

// pushed is the result of a push.
type pushed int

const (
	pushOK pushed = iota
	pushFull
	pushClosed
)

// newBatchRing returns a ring for size calls, a power of two.
func newBatchRing(size int, locks bool) batchRing {
	if locks {
		return &lockedRing{calls: make([]call, size)}
	}
	return newFreeRing(size)
}

// freeRing is a lock-free batchRing (R43): a bounded queue of cells with sequence numbers.
// Position p belongs to its producer while the number is p, and to the consumer while it is
// p+1; the consumer stores p+len to pass it on. A producer claims a position by
// compare-and-swap of tail; storing the number publishes the call. A closed ring has
// ringClosed in tail, so that no claim succeeds; earlier claims are published soon.
type freeRing struct {
	cells []cell
	_     [64]byte
	tail  atomic.Uint64 // next position to claim
	_     [64]byte
	head  uint64 // next position to consume; the consumer only
}

const ringClosed = 1 << 63

type cell struct {
	seq  atomic.Uint64
	call call
}

func newFreeRing(size int) *freeRing {
	r := &freeRing{cells: make([]cell, size)}
	for i := range r.cells {
		r.cells[i].seq.Store(uint64(i))
	}
	return r
}

func (r *freeRing) push(c call) pushed {
	for {
		pos := r.tail.Load()
		if pos&ringClosed != 0 {
			return pushClosed
		}
		cell := &r.cells[pos&uint64(len(r.cells)-1)]
		switch seq := cell.seq.Load(); {
		case seq == pos:
			if r.tail.CompareAndSwap(pos, pos+1) {
				cell.call = c
				cell.seq.Store(pos + 1)
				return pushOK
			}
		case seq < pos:
			return pushFull // the previous call at this position is not consumed yet
		}
	}
}

func (r *freeRing) peek() *call {
	cell := &r.cells[r.head&uint64(len(r.cells)-1)]
	if cell.seq.Load() != r.head+1 {
		return nil
	}
	return &cell.call
}

func (r *freeRing) drop() {
	cell := &r.cells[r.head&uint64(len(r.cells)-1)]
	cell.call = call{}
	cell.seq.Store(r.head + uint64(len(r.cells)))
	r.head++
}

func (r *freeRing) close() { r.tail.Or(ringClosed) }

func (r *freeRing) empty() bool { return r.tail.Load()&^ringClosed == r.head }

func (r *freeRing) drained() bool { return r.tail.Load() == r.head|ringClosed }

// lockedRing is a batchRing with a lock, the paper's comparison for the lock-free one (R50).
type lockedRing struct {
	mu         sync.Mutex
	calls      []call
	head, tail uint64 // calls [head, tail) are queued
	closed     bool
}

func (r *lockedRing) at(pos uint64) *call { return &r.calls[pos&uint64(len(r.calls)-1)] }

func (r *lockedRing) push(c call) pushed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return pushClosed
	}
	if r.tail-r.head == uint64(len(r.calls)) {
		return pushFull
	}
	*r.at(r.tail) = c
	r.tail++
	return pushOK
}

// peek returns a call that producers do not access until it is dropped.
func (r *lockedRing) peek() *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.head == r.tail {
		return nil
	}
	return r.at(r.head)
}

func (r *lockedRing) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.at(r.head) = call{}
	r.head++
}

func (r *lockedRing) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

func (r *lockedRing) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head == r.tail
}

func (r *lockedRing) drained() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed && r.head == r.tail
}
