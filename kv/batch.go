package kv

import (
	"context"
	"errors"
)

// Batches and streams of operations, which go through lanes.

// handBack hands an operation back that is complete.
func (s *Session) handBack(op *Op, err error, stream bool) {
	op.Err = err
	if stream {
		s.streamed--
		s.polled.push(op)
		return
	}
	s.noteError(err)
}

// noteError keeps the first error of a batch for Do.
func (s *Session) noteError(err error) {
	if err != nil && s.batchErr == nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrExists) {
		s.batchErr = err
	}
}

// Do carries a batch out, with its cold reads under way together, and returns
// when all are complete. Each operation has its own error in Op.Err; Do returns one of
// these which is neither ErrNotFound nor ErrExists, not necessarily the first in the
// order of the batch. If the session itself fails, Do returns that error, and
// [Session.Err] is not nil: then operations may be incomplete.
func (s *Session) Do(ops []Op) error {
	if err := s.refusal(); err != nil {
		return err
	}
	s.flush()
	s.batchErr = nil
	s.allowDirect(false) // until the end: a Modifier may panic
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

// DoWhole is Do for a batch that every commit and checkpoint has whole or not at all:
// these wait for its end, and new ones like it for theirs. Where Do has operations whose
// records are on the device, one may be committed that comes after another that is not
// (see [CommitPoint]). Others see what the batch changes as with Do, one operation after
// the other.
func (s *Session) DoWhole(ops []Op) error {
	if len(ops) == 1 || s.holds.adds != 0 || !change(ops) {
		return s.Do(ops) // one operation is whole, and so is what Atomically does
	}
	if err := s.refusal(); err != nil {
		return err
	}
	if err := s.store.share(&s.store.wholes); err != nil {
		return err
	}
	defer s.store.wholes.RUnlock()
	return s.Do(ops)
}

// change says whether any of the operations does.
func change(ops []Op) bool {
	for i := range ops {
		if ops[i].Kind.changes() {
			return true
		}
	}
	return false
}

// Submit starts an operation, which Poll hands back when it is complete.
// ErrQueueFull: QueueDepth operations are under way or waiting to be polled; op
// was not started. It was if Submit panics, as the Modifier of an operation before
// it did.
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

// Poll hands back operations that Submit started and that are complete, as many
// as there are and done has room for. It waits for no read.
func (s *Session) Poll(done []*Op) int {
	if s.asker != 0 {
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

// Wait parks until Poll has something to hand back, or ctx ends. It returns at
// once where nothing is under way.
func (s *Session) Wait(ctx context.Context) error {
	if s.asker != 0 {
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

// Pending is how many operations Submit started that Poll has not handed back.
func (s *Session) Pending() int { return s.streamed + s.polled.len() }
