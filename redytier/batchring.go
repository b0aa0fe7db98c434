package redytier

import (
	"sync"
	"sync/atomic"
)

// batchRing carries calls from any goroutine to one client thread, first in, first
// out.
type batchRing interface {
	// push adds a call. Any goroutine.
	push(c call) pushed
	// peek returns the oldest call, or nil; it stays in the ring. The consumer only.
	peek() *call
	// drop removes the call that peek returned. The consumer only.
	drop()
	// close makes every later push return pushClosed. Any goroutine.
	close()
	// drained says that the ring is closed and nothing will come any more. The
	// consumer only.
	drained() bool
}

// pushed says how an attempt to push went.
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

// freeRing is a batchRing without locks (R43): a bounded queue of cells, each with
// a turn that says whose it is. Position p belongs to the producer that claims p
// while its turn is p, to the consumer while it is p+1, and the consumer passes it
// on to the producer of p+len by setting that. A producer claims a position by
// compare-and-swap of tail; storing the turn publishes the call. A closed ring has
// ringClosed in tail, and so no claim succeeds; those before are published soon.
type freeRing struct {
	cells []cell
	_     [64]byte
	tail  atomic.Uint64 // next position to claim
	_     [64]byte
	head  uint64 // the consumer's
}

const ringClosed = 1 << 63

type cell struct {
	turn atomic.Uint64
	call call
}

func newFreeRing(size int) *freeRing {
	r := &freeRing{cells: make([]cell, size)}
	for i := range r.cells {
		r.cells[i].turn.Store(uint64(i))
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
		switch turn := cell.turn.Load(); {
		case turn == pos:
			if r.tail.CompareAndSwap(pos, pos+1) {
				cell.call = c
				cell.turn.Store(pos + 1)
				return pushOK
			}
		case turn < pos:
			return pushFull // not consumed since the last time around
		}
	}
}

func (r *freeRing) peek() *call {
	cell := &r.cells[r.head&uint64(len(r.cells)-1)]
	if cell.turn.Load() != r.head+1 {
		return nil
	}
	return &cell.call
}

func (r *freeRing) drop() {
	cell := &r.cells[r.head&uint64(len(r.cells)-1)]
	cell.call = call{}
	cell.turn.Store(r.head + uint64(len(r.cells)))
	r.head++
}

func (r *freeRing) close() { r.tail.Or(ringClosed) }

func (r *freeRing) drained() bool { return r.tail.Load() == r.head|ringClosed }

// lockedRing is a batchRing with a lock, which is what the paper compares its
// lock-free one with (R50).
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

// peek's call is the consumer's until it drops it: producers do not touch it.
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

func (r *lockedRing) drained() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed && r.head == r.tail
}
