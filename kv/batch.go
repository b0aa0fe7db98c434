package kv

import (
	"context"
	"errors"
)

// Batches (Do) and streams (Submit, Poll, Wait) of operations, which go through the index
// in lanes: see lane.go.

// handBack completes an operation for its caller.
func (s *Session) handBack(op *Op, err error, stream bool) {
	op.Err = err
	if stream {
		s.streamed--
		s.polled.push(op)
		return
	}
	s.noteError(err)
}

// noteError keeps the first error of a batch that Do is to return.
func (s *Session) noteError(err error) {
	if err != nil && s.batchErr == nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrExists) {
		s.batchErr = err
	}
}

// Do carries out a batch of operations and returns when all are complete. Reads of the
// device are pending at the same time. Each operation has its own error in Op.Err; Do
// returns one of these that is neither ErrNotFound nor ErrExists, not necessarily the first
// in the order of the batch. If the session itself fails, Do returns that error, operations
// may be incomplete, and [Session.Err] is not nil.
//
// Where an operation has to wait after ctx has ended, see [Session.SetContext], it is not
// carried out, and its Err is ctx's error. The others are carried out.
func (s *Session) Do(ctx context.Context, ops []Op) error {
	if err := s.refusal(); err != nil {
		return err
	}
	before := s.ctx
	s.ctx = ctx
	defer func() { s.ctx = before }() // deferred: a Modifier may panic
	s.flush()
	s.batchErr = nil
	s.allowDirect(false) // stays so if a Modifier panics
	for len(ops) > 0 {
		ops = ops[s.stageAll(ops):]
	}
	s.flush()
	if s.batch > 0 {
		if err := s.awaitBatch(); err != nil {
			return err
		}
	}
	s.allowDirect(s.streamed == 0)
	return s.batchErr
}

// DoWhole is Do for a batch that every commit and checkpoint contains whole or not at all.
// Commits and checkpoints wait for its end, and a new DoWhole waits for theirs. With Do, a
// commit may contain an operation and lack an earlier one of the batch, whose record was on
// the device (see [CommitPoint]). Other sessions see the changes of the batch one by one, as
// with Do.
func (s *Session) DoWhole(ctx context.Context, ops []Op) error {
	if len(ops) == 1 || s.holds.adds != 0 || !change(ops) {
		return s.Do(ctx, ops) // one operation is atomic, and so is a batch within Atomically
	}
	if err := s.refusal(); err != nil {
		return err
	}
	if err := s.store.share(ctx, &s.store.wholes); err != nil {
		return err
	}
	defer s.store.wholes.RUnlock()
	return s.Do(ctx, ops)
}

// change says whether any of the operations may change a record.
func change(ops []Op) bool {
	for i := range ops {
		if ops[i].Kind.changes() {
			return true
		}
	}
	return false
}

// Submit starts an operation, which Poll hands back when it is complete. It is
// ErrQueueFull, and op is not started, while QueueDepth operations have not been handed
// back. If Submit panics, with the Modifier of an earlier operation, op was started.
func (s *Session) Submit(op *Op) error {
	if err := s.refusal(); err != nil {
		return err
	}
	if s.Pending() == len(s.pending) {
		return ErrQueueFull
	}
	if op == nil {
		return errNoOp
	}
	s.streamed++
	s.allowDirect(false)
	s.stage(op)
	return nil
}

// Poll fills done with completed operations of Submit and returns their number. It does not
// wait for reads of the device.
func (s *Session) Poll(done []*Op) int {
	if s.inUserCode != 0 {
		return 0
	}
	if s.polled.len() < len(done) {
		s.pollQueue()
	}
	if s.polled.len() == 0 {
		s.flush()
		s.pollQueue()
	}
	n := 0
	for ; n < len(done) && s.polled.len() > 0; n++ {
		done[n] = s.polled.pop()
	}
	return n
}

// Wait waits until Poll has an operation to hand back, or ctx ends. It returns at once if
// no operation has been submitted that Poll has not handed back.
func (s *Session) Wait(ctx context.Context) error {
	if s.inUserCode != 0 {
		return ErrInModifier
	}
	if s.polled.len() == 0 {
		s.flush()
	}
	for s.polled.len() == 0 && s.streamed > 0 {
		if err := s.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Pending is the number of operations that were submitted and not handed back.
func (s *Session) Pending() int { return s.streamed + s.polled.len() }
