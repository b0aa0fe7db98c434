// Package blocking makes a device.Queue out of calls that block: each operation is carried
// out by a goroutine of a pool.
package blocking

import (
	"context"
	"fmt"
	"math"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/queue"
)

// Storage carries out operations. Its methods are called concurrently, and return when the
// operation is complete.
type Storage interface {
	// ReadAt fills dst from addr.
	ReadAt(dst []byte, addr int64) error
	// WriteAt stores src at addr.
	WriteAt(src []byte, addr int64) error
}

// Engine is a Storage with its pool, which all its queues share.
type Engine struct {
	name    string
	storage Storage
	pool    *queue.Pool
}

// New returns an Engine that carries out up to workers operations at once. name begins the
// errors of the engine itself.
func New(name string, storage Storage, workers int) *Engine {
	return &Engine{name: name, storage: storage, pool: queue.NewPool(workers)}
}

// Close waits until no operation is pending. Operations that are submitted later end with
// device.ErrClosed.
func (e *Engine) Close() { e.pool.Close() }

// blockingQueue implements device.Queue.
type blockingQueue struct {
	e      *Engine
	core   *queue.Core
	ops    []operation // by number in core
	closed bool
}

// operation is one read or write, from Read or Write until Poll. The pool owns it from
// Submit until it has run.
type operation struct {
	write bool
	buf   []byte
	addr  int64
	tag   uint64
	err   error
}

// NewQueue returns a queue of up to depth pending operations.
func (e *Engine) NewQueue(depth int) (device.Queue, error) {
	if depth < 1 || depth > queue.MaxDepth {
		return nil, fmt.Errorf("%s: queue depth %d, want 1 to %d", e.name, depth, queue.MaxDepth)
	}
	q := &blockingQueue{e: e, ops: make([]operation, depth)}
	q.core = queue.NewCore(e.pool, depth, q.run)
	return q, nil
}

// run carries out operation n, on a goroutine of the pool.
func (q *blockingQueue) run(n uint32, closed bool) {
	op := &q.ops[n]
	switch {
	case closed:
		op.err = device.ErrClosed
	case op.write:
		op.err = q.e.storage.WriteAt(op.buf, op.addr)
	default:
		op.err = q.e.storage.ReadAt(op.buf, op.addr)
	}
}

func (q *blockingQueue) Read(dst []byte, addr int64, tag uint64) error {
	return q.enqueue(operation{buf: dst, addr: addr, tag: tag})
}

func (q *blockingQueue) Write(src []byte, addr int64, tag uint64) error {
	return q.enqueue(operation{buf: src, addr: addr, tag: tag, write: true})
}

func (q *blockingQueue) enqueue(op operation) error {
	if q.closed {
		return device.ErrClosed
	}
	n, ok := q.core.Take()
	if !ok {
		return device.ErrQueueFull
	}
	q.ops[n] = op
	if op.addr >= 0 && op.addr <= math.MaxInt64-int64(len(op.buf)) {
		q.core.Enqueue(n)
		return nil
	}
	q.ops[n].err = fmt.Errorf("%s: %d bytes at address %d: out of range", q.e.name, len(op.buf), op.addr)
	q.core.End(n)
	return nil
}

func (q *blockingQueue) Submit() error {
	if q.closed {
		return device.ErrClosed
	}
	q.core.Submit()
	return nil
}

func (q *blockingQueue) Poll(done []device.Completion) int {
	ready := q.ready()
	ready = ready[:min(len(ready), len(done))]
	for i, n := range ready {
		op := &q.ops[n]
		done[i] = device.Completion{Tag: op.tag, N: len(op.buf), Err: op.err}
		if op.err != nil {
			done[i].N = 0
		}
		op.buf, op.err = nil, nil
		q.core.Free(n)
	}
	for range ready {
		q.core.Next()
	}
	return len(ready)
}

// ready returns the completed operations. It asks the pool if there are none.
func (q *blockingQueue) ready() []uint32 {
	if len(q.core.Ready()) == 0 {
		q.core.Gather()
	}
	return q.core.Ready()
}

func (q *blockingQueue) Wait(ctx context.Context) error {
	if err := q.Submit(); err != nil {
		return err
	}
	for q.core.Len() > 0 && len(q.ready()) == 0 {
		if !q.core.WantWake() {
			continue
		}
		if err := q.core.Park(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (q *blockingQueue) Close() error {
	if q.closed {
		return nil
	}
	if err := queue.Drain(q, q.core.Len); err != nil {
		return err
	}
	q.closed = true
	return nil
}
