package core

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
)

// MaxDepth is the most operations that a queue pair may have pending.
const MaxDepth = 1 << 16

// MaxLength is the largest size of one operation in bytes.
const MaxLength = 1 << 31

// Kind is the kind of an operation.
type Kind uint8

const (
	Read Kind = iota
	Write
	WriteImm
)

// Request is one operation of the owner. It keeps its place in the queue from Push until its
// completion is polled.
type Request struct {
	Buf    []byte // destination of a Read, source of the others
	Offset int64
	Tag    uint64
	Err    error // set by the executor before the operation is done
	Handle uint32
	Imm    uint32
	Kind   Kind
}

// SendQueue is the ring of a queue pair's own operations:
//
//	head ......... done ......... started ......... submitted ......... tail
//	  to be polled       pending         rung, waiting         enqueued
//
// The owner moves every mark but done. The executor moves done: the owner itself where the
// peer's memory is mapped, else the connection's reading goroutine. Advancing done returns
// the places below it to the owner.
type SendQueue struct {
	slots []Request
	mask  uint64
	depth uint64

	head, started, submitted, tail uint64

	done atomic.Uint64
}

// Init makes room for depth operations, which CheckDepth allows.
func (q *SendQueue) Init(depth int) {
	n := 1 << bits.Len(uint(depth-1))
	q.slots, q.mask, q.depth = make([]Request, n), uint64(n-1), uint64(depth)
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

// Submit rings the doorbell: all enqueued operations may start.
func (q *SendQueue) Submit() { q.submitted = q.tail }

// Enqueued returns the range of operations that are not submitted yet, for At.
func (q *SendQueue) Enqueued() (from, to uint64) { return q.submitted, q.tail }

// Waiting reports whether an operation is submitted but not started.
func (q *SendQueue) Waiting() bool { return q.started != q.submitted }

// Next returns the range of operations that may start, for At.
func (q *SendQueue) Next() (from, to uint64) { return q.started, q.submitted }

// At returns operation i.
func (q *SendQueue) At(i uint64) *Request { return &q.slots[i&q.mask] }

// Start marks operations below i as started. Called by the owner.
func (q *SendQueue) Start(i uint64) { q.started = i }

// Finish marks operations below i as done. Called by the executor.
func (q *SendQueue) Finish(i uint64) { q.done.Store(i) }

// Done is the number below which operations are done.
func (q *SendQueue) Done() uint64 { return q.done.Load() }

// Completed reports whether Poll has a completion to return. Called by the owner.
func (q *SendQueue) Completed() bool { return q.head != q.done.Load() }

// Pending reports whether an operation is enqueued and not done. Called by the owner.
func (q *SendQueue) Pending() bool { return q.tail != q.done.Load() }

// Fail ends all enqueued operations with err. The owner calls it when there is no other
// executor any more.
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
		s.Buf = nil // it belongs to the caller again
		q.head++
	}
	return n
}
