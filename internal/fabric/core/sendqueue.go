package core

import (
	"fmt"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
)

// MaxDepth is the most operations that a queue pair may have under way.
const MaxDepth = 1 << 16

// MaxLength is the most bytes of one operation.
const MaxLength = 1 << 31

// Kind is what an operation asks for.
type Kind uint8

const (
	Read Kind = iota
	Write
	WriteImm
)

// Request is one operation of the owner, in the slot that is its own from Push
// until its completion is polled.
type Request struct {
	Buf    []byte // filled by a Read, sent by the others
	Offset int64
	Tag    uint64
	Err    error // set by whoever executes it, before it counts as done
	Handle uint32
	Imm    uint32
	Kind   Kind
}

// SendQueue is the ring of a queue pair's own operations. A slot goes round
//
//	head ......... done ......... started ......... submitted ......... tail
//	  to be polled      under way         rung, waiting         enqueued
//
// The owner moves every mark but done, which belongs to whoever executes: the
// owner itself where a peer's memory is at hand, the connection's reader where
// it is not. Advancing done hands the slots below it back to the owner.
type SendQueue struct {
	slots []Request
	mask  uint64
	depth uint64

	head, started, submitted, tail uint64

	done atomic.Uint64
}

// Init makes room for depth operations. It fails on a depth outside
// [1, MaxDepth].
func (q *SendQueue) Init(depth int) error {
	if err := CheckDepth(depth); err != nil {
		return err
	}
	n := 1
	for n < depth {
		n *= 2
	}
	q.slots, q.mask, q.depth = make([]Request, n), uint64(n-1), uint64(depth)
	return nil
}

// Push enqueues an operation, or returns fabric.ErrQueueFull.
// It refuses one of more than MaxLength bytes.
func (q *SendQueue) Push(kind Kind, buf []byte, r fabric.Remote, offset int64, imm uint32, tag uint64) error {
	if q.tail-q.head >= q.depth {
		return fabric.ErrQueueFull
	}
	if len(buf) > MaxLength {
		return fmt.Errorf("operation of %d bytes: %w", len(buf), fabric.ErrOutOfBounds)
	}
	s := &q.slots[q.tail&q.mask]
	s.Buf, s.Offset, s.Tag, s.Err = buf, offset, tag, nil
	s.Handle, s.Imm, s.Kind = r.Handle, imm, kind
	q.tail++
	return nil
}

// Submit rings the bell: everything enqueued may start.
func (q *SendQueue) Submit() { q.submitted = q.tail }

// Enqueued returns the range of operations that are not rung yet, for At.
func (q *SendQueue) Enqueued() (from, to uint64) { return q.submitted, q.tail }

// Waiting reports whether an operation is rung but not started.
func (q *SendQueue) Waiting() bool { return q.started != q.submitted }

// Next returns the range of operations that may be started now, for At.
func (q *SendQueue) Next() (from, to uint64) { return q.started, q.submitted }

// At is the operation of that number.
func (q *SendQueue) At(i uint64) *Request { return &q.slots[i&q.mask] }

// Start says that operations below i are under way. Owner.
func (q *SendQueue) Start(i uint64) { q.started = i }

// Finish says that operations below i are done. Executor.
func (q *SendQueue) Finish(i uint64) { q.done.Store(i) }

// Done is the number below which operations are done.
func (q *SendQueue) Done() uint64 { return q.done.Load() }

// Completed reports whether Poll has something to return. Owner.
func (q *SendQueue) Completed() bool { return q.head != q.done.Load() }

// UnderWay reports whether an operation was enqueued and is not done. Owner.
func (q *SendQueue) UnderWay() bool { return q.tail != q.done.Load() }

// Fail ends everything enqueued with err. The owner calls it once nobody else
// executes any more.
func (q *SendQueue) Fail(err error) {
	done := q.done.Load()
	if done == q.tail {
		return
	}
	for i := done; i != q.tail; i++ {
		q.At(i).Err = err
	}
	q.started, q.submitted = q.tail, q.tail
	q.done.Store(q.tail)
}

// Poll moves completions into out, in the order of enqueueing.
func (q *SendQueue) Poll(out []fabric.Completion) int {
	n := int(min(q.done.Load()-q.head, uint64(len(out))))
	for i := range out[:n] {
		s := &q.slots[q.head&q.mask]
		c := &out[i]
		c.Tag, c.N, c.Err, c.Imm = s.Tag, len(s.Buf), s.Err, 0
		c.Op = fabric.OpRead
		if s.Kind != Read {
			c.Op = fabric.OpWrite
		}
		if s.Err != nil {
			c.N = 0
		}
		s.Buf = nil // the caller's again; keep nothing of it alive
		q.head++
	}
	return n
}
