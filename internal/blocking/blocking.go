// Package blocking makes a device.Queue out of calls that block: each operation is
// carried out by a goroutine of a pool, many at a time.
package blocking

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/slots"
	"github.com/redykv/redykv/internal/workpool"
)

// Storage is what carries operations out. Its methods are called by many goroutines
// at once; each returns when its operation is over.
type Storage interface {
	// ReadAt fills dst from addr.
	ReadAt(dst []byte, addr int64) error
	// WriteAt stores src at addr.
	WriteAt(src []byte, addr int64) error
}

// Engine is a Storage with its pool. All its queues share the pool.
type Engine struct {
	name    string
	storage Storage
	pool    *workpool.Pool
}

// New returns an Engine that has up to workers operations under way on storage.
// name begins the errors that are its own.
func New(name string, storage Storage, workers int) *Engine {
	return &Engine{name: name, storage: storage, pool: workpool.New(workers)}
}

// Close waits until nothing is under way any more. Operations that are submitted
// later end with device.ErrClosed.
func (e *Engine) Close() { e.pool.Close() }

// maxDepth is the most operations under way that one queue can be made for.
const maxDepth = 1 << 16

// queue is one goroutine's operations. The pool's goroutines give an operation's
// slot back through done; only that needs a lock.
type queue struct {
	e        *Engine
	slots    []operation
	free     []uint32
	enqueued workpool.List
	outside  int      // given to the pool, or in done
	ready    []uint32 // slots whose operation is over, from taken on
	taken    int
	closed   bool

	mu      sync.Mutex
	done    []uint32      // slots that the pool is through with
	waiting bool          // the owner is about to park
	wake    chan struct{} // one token for a waiting owner
}

// operation is one read or write, from Read or Write until Poll. The pool has it
// while it is enqueued or under way.
type operation struct {
	q     *queue
	job   workpool.Job
	slot  uint32
	write bool
	buf   []byte
	addr  int64
	tag   uint64
	err   error
}

// NewQueue returns a queue that holds up to depth operations under way.
func (e *Engine) NewQueue(depth int) (device.Queue, error) {
	if depth < 1 || depth > maxDepth {
		return nil, fmt.Errorf("%s: queue depth %d, want 1 to %d", e.name, depth, maxDepth)
	}
	q := &queue{
		e: e, slots: make([]operation, depth), free: make([]uint32, depth),
		ready: make([]uint32, 0, depth), done: make([]uint32, 0, depth), wake: make(chan struct{}, 1),
	}
	for i := range q.slots {
		op := &q.slots[i]
		op.q, op.slot, op.job.Run = q, uint32(i), op.run
		q.free[i] = uint32(depth - 1 - i)
	}
	return q, nil
}

// run carries the operation out, on a goroutine of the pool.
func (op *operation) run(closed bool) {
	switch {
	case closed:
		op.err = device.ErrClosed
	case op.write:
		op.err = op.q.e.storage.WriteAt(op.buf, op.addr)
	default:
		op.err = op.q.e.storage.ReadAt(op.buf, op.addr)
	}
	op.q.complete(op.slot)
}

// complete hands a slot back to the owner, and wakes it if it waits.
func (q *queue) complete(slot uint32) {
	q.mu.Lock()
	q.done = append(q.done, slot)
	waiting := q.waiting
	q.waiting = false
	q.mu.Unlock()
	if waiting {
		select {
		case q.wake <- struct{}{}:
		default: // a token is there already
		}
	}
}

// Read implements device.Queue.
func (q *queue) Read(dst []byte, addr int64, tag uint64) error {
	return q.enqueue(dst, addr, tag, false)
}

// Write implements device.Queue.
func (q *queue) Write(src []byte, addr int64, tag uint64) error {
	return q.enqueue(src, addr, tag, true)
}

func (q *queue) enqueue(buf []byte, addr int64, tag uint64, write bool) error {
	switch {
	case q.closed:
		return device.ErrClosed
	case len(q.free) == 0:
		return device.ErrQueueFull
	}
	op := &q.slots[q.free[len(q.free)-1]]
	q.free = q.free[:len(q.free)-1]
	op.buf, op.addr, op.tag, op.write, op.err = buf, addr, tag, write, nil
	if addr < 0 || addr > math.MaxInt64-int64(len(buf)) {
		op.err = fmt.Errorf("%s: %d bytes at address %d: out of range", q.e.name, len(buf), addr)
		q.ready = append(q.ready, op.slot)
		return nil
	}
	q.enqueued.Push(&op.job)
	return nil
}

// Submit implements device.Queue.
func (q *queue) Submit() error {
	if q.closed {
		return device.ErrClosed
	}
	if n := q.enqueued.Len(); n > 0 {
		q.outside += n
		q.e.pool.Submit(&q.enqueued)
	}
	return nil
}

// gather makes ready what is over, unless something is.
func (q *queue) gather() {
	if q.taken < len(q.ready) || q.outside == 0 {
		return
	}
	q.mu.Lock()
	q.ready, q.taken = append(q.ready[:0], q.done...), 0
	q.done = q.done[:0]
	q.mu.Unlock()
	q.outside -= len(q.ready)
}

// Poll implements device.Queue.
func (q *queue) Poll(done []device.Completion) int {
	q.gather()
	n := min(len(done), len(q.ready)-q.taken)
	for i := range n {
		op := &q.slots[q.ready[q.taken]]
		q.taken++
		done[i] = device.Completion{Tag: op.tag, N: len(op.buf), Err: op.err}
		if op.err != nil {
			done[i].N = 0
		}
		op.buf, op.err = nil, nil
		q.free = append(q.free, op.slot)
	}
	if q.taken == len(q.ready) {
		q.ready, q.taken = q.ready[:0], 0
	}
	return n
}

// Wait implements device.Queue.
func (q *queue) Wait(ctx context.Context) error {
	if err := q.Submit(); err != nil {
		return err
	}
	for len(q.free) < len(q.slots) {
		if q.gather(); q.taken < len(q.ready) {
			return nil
		}
		if !q.wantWake() {
			continue
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// wantWake asks for a wake by the next operation that ends; it returns false if one
// has ended already.
func (q *queue) wantWake() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = len(q.done) == 0
	return q.waiting
}

// Close implements device.Queue.
func (q *queue) Close() error {
	if q.closed {
		return nil
	}
	if err := slots.Drain(q, func() int { return len(q.slots) - len(q.free) }); err != nil {
		return err
	}
	q.closed = true
	return nil
}
