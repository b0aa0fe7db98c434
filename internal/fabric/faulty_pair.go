package fabric

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
)

// faultyPair is a queue pair of a Faulty. All fields but provider and end belong to its owner.
//
// ops holds the operations that are not polled yet, in order: those passed to the transport
// and, between them, those that failed here.
type faultyPair struct {
	QueuePair
	provider *Faulty
	rand     *rand.Rand
	depth    uint64
	ops      ring[faultyOp]
	rung     uint64 // ops below were submitted
	hold     int    // polls for which completions are delayed
	cutting  bool   // the connection ends at the next Submit
	gone     bool   // the transport's queue pair is closed
	recvs    []Completion
	got      [64]Completion

	end atomic.Pointer[error] // the error of a connection that was cut
}

// faultyOp is an operation, or its completion once over is set.
type faultyOp struct {
	done Completion
	over bool
}

func (q *faultyPair) Read(dst []byte, r Remote, offset int64, tag uint64) error {
	return q.enqueue(OpRead, tag, func() error { return q.QueuePair.Read(dst, r, offset, tag) })
}

func (q *faultyPair) Write(src []byte, r Remote, offset int64, tag uint64) error {
	return q.enqueue(OpWrite, tag, func() error { return q.QueuePair.Write(src, r, offset, tag) })
}

func (q *faultyPair) WriteImm(src []byte, r Remote, offset int64, imm uint32, tag uint64) error {
	if q.rand.Float64() < q.provider.opts.Load().Corrupt {
		q.provider.corrupted.Add(1)
		if len(src) == 0 {
			imm ^= 1 << q.rand.IntN(32)
		} else {
			src = bytes.Clone(src)
			src[q.rand.IntN(len(src))] ^= 1 << q.rand.IntN(8)
		}
	}
	return q.enqueue(OpWrite, tag, func() error { return q.QueuePair.WriteImm(src, r, offset, imm, tag) })
}

// enqueue passes an operation to the transport, unless it is to fail.
func (q *faultyPair) enqueue(op Op, tag uint64, send func() error) error {
	if err := q.Err(); err != nil {
		return err
	}
	if q.ops.len() == q.depth {
		return ErrQueueFull
	}
	plan := q.provider.opts.Load()
	k := plan.operations.Add(1)
	f := faultyOp{done: Completion{Tag: tag, Op: op}, over: true}
	switch {
	case q.cutting || k == plan.CutAt || q.rand.Float64() < plan.Cut:
		q.cutting = true
		f.done.Err = fmt.Errorf("%w: %w", ErrDisconnected, ErrFault)
	case k == plan.FailAt || q.rand.Float64() < plan.Error:
		q.provider.errors.Add(1)
		f.done.Err = ErrFault
	default:
		if err := send(); err != nil {
			return err
		}
		f.over = false
	}
	q.ops.push(f)
	return nil
}

// Submit ends the connection if that is due, after it has submitted earlier operations.
func (q *faultyPair) Submit() error {
	if q.end.Load() == nil {
		q.rung = q.ops.tail
		if err := q.QueuePair.Submit(); err != nil {
			return err
		}
	}
	if q.cutting {
		q.cut()
	}
	q.leave()
	return q.Err()
}

// cut marks the connection as ended. Safe for concurrent use.
func (q *faultyPair) cut() {
	err := fmt.Errorf("%w: %w", ErrDisconnected, ErrFault)
	if q.end.CompareAndSwap(nil, &err) {
		q.provider.cuts.Add(1)
	}
}

// leave closes the transport's queue pair if the connection was cut. Called by the owner.
func (q *faultyPair) leave() {
	if q.end.Load() == nil || q.gone {
		return
	}
	q.gone = true
	_ = q.QueuePair.Close() // no caller to report to
}

func (q *faultyPair) Err() error {
	if p := q.end.Load(); p != nil {
		return *p
	}
	return q.QueuePair.Err()
}

func (q *faultyPair) Import(ctx context.Context, token Token) (Remote, error) {
	if err := q.Err(); err != nil {
		return Remote{}, fmt.Errorf("import region: %w", err)
	}
	if q.provider.chance(q.provider.opts.Load().Import) {
		q.provider.errors.Add(1)
		return Remote{}, fmt.Errorf("import region: %w", ErrFault)
	}
	return q.QueuePair.Import(ctx, token)
}

// gather takes the transport's completions.
func (q *faultyPair) gather() {
	next := q.ops.head
	got := q.got[:q.QueuePair.Poll(q.got[:len(q.got)-len(q.recvs)])]
	for _, c := range got {
		if c.Op == OpRecv {
			q.recvs = append(q.recvs, c)
			continue
		}
		for q.ops.at(next).over { // operations that failed here
			next++
		}
		if end := q.end.Load(); end != nil && errors.Is(c.Err, ErrClosed) {
			c.Err = *end
		}
		*q.ops.at(next) = faultyOp{done: c, over: true}
	}
	plan := q.provider.opts.Load()
	if len(got) > 0 && q.rand.Float64() < plan.Delay {
		q.hold = 1 + q.rand.IntN(plan.MaxDelay)
		q.provider.delayed.Add(1)
	}
}

func (q *faultyPair) Poll(done []Completion) (n int) {
	q.leave()
	q.gather()
	if q.hold > 0 {
		q.hold--
		return 0
	}
	for n < len(done) && q.deliverable() {
		done[n] = q.ops.at(q.ops.head).done
		q.ops.head++
		n++
	}
	taken := copy(done[n:], q.recvs)
	q.recvs = q.recvs[:copy(q.recvs, q.recvs[taken:])]
	return n + taken
}

// deliverable reports whether the oldest operation is over. An operation that is not
// submitted is over only if the connection has ended.
func (q *faultyPair) deliverable() bool {
	return q.ops.len() > 0 && q.ops.at(q.ops.head).over && (q.ops.head < q.rung || q.Err() != nil)
}

func (q *faultyPair) Wait(ctx context.Context) error {
	q.leave()
	if q.gather(); q.hold > 0 || q.deliverable() || len(q.recvs) > 0 {
		return nil
	}
	if end := q.end.Load(); end != nil {
		return *end
	}
	return q.QueuePair.Wait(ctx)
}

// Close keeps the error of a connection that was cut before. Called by the owner.
func (q *faultyPair) Close() error {
	q.provider.forget(q)
	return q.QueuePair.Close()
}
