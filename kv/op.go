package kv

import (
	"context"
	"errors"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// Errors that a caller can handle.
var (
	// ErrNotFound means that the store has no record of the key.
	ErrNotFound = errors.New("kv: key not found")
	// ErrExists means that an insert found a record of the key.
	ErrExists = errors.New("kv: key exists")
	// ErrQueueFull means that the session has QueueDepth operations that Poll has not handed
	// back: call Poll, and submit again.
	ErrQueueFull = errors.New("kv: session queue full")
	// ErrNameInUse means that the name belongs to another open session, or to another
	// checkpoint.
	ErrNameInUse = errors.New("kv: name in use")
	// ErrBadName means that the name is not valid for a session or a checkpoint.
	ErrBadName = errors.New("kv: bad name")
	// ErrClosed means that the store or the session is closed.
	ErrClosed = errors.New("kv: closed")
	// ErrBadSize means that a key or a value differs in size from the store's records, or that
	// the record is too large for a page.
	ErrBadSize = errors.New("kv: bad key or value size")
	// ErrInModifier means that a session was called from within its own Modifier, WordModifier or
	// InPlace.
	ErrInModifier = errors.New("kv: called from within a Modifier of the session")
	// ErrBadExpiry means that the expiry of a record to be written is before MinExpires.
	ErrBadExpiry = errors.New("kv: bad expiry")
	// ErrCorrupt means that data read from the device is damaged: a checksum of the device is
	// wrong, or the store found a contradiction.
	ErrCorrupt = device.ErrCorrupt
	// ErrOpening means that the context of OpenContext has ended a second ago and the opening has not, as
	// when the device does not answer. It ends later, and then closes the device; the caller does not.
	ErrOpening = errors.New("kv: the opening has not ended yet")
	// ErrMismatch means that the store on the device was made with different options.
	ErrMismatch = manifest.ErrMismatch
)

// MinExpires is the earliest expiry of a record to be written, in milliseconds of Unix time:
// the beginning of 1980. A smaller number is most likely in seconds, and the record would
// expire at once; it is refused with ErrBadExpiry.
const MinExpires = 315_532_800_000

// ExpiresAt returns the Expires of a record that expires at t, rounded up to a millisecond.
// The zero time means never.
func ExpiresAt(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Millisecond - 1).UnixMilli()
}

// ExpiresIn returns the Expires of a record that expires after d from now. See also
// [Session.UpsertTTL].
func ExpiresIn(d time.Duration) int64 { return ExpiresAt(time.Now().Add(d)) }

// ExpiryTime returns the time of an Expires. The zero time means never.
func ExpiryTime(expires int64) time.Time {
	if expires == 0 {
		return time.Time{}
	}
	return time.UnixMilli(expires)
}

// OpKind is the kind of an Op.
type OpKind uint8

const (
	// OpRead reads the key's value into Op.Value.
	OpRead OpKind = iota
	// OpUpsert stores Op.Value under the key, whether or not there is a record.
	OpUpsert
	// OpRMW changes the key's record by Op.Modify, Op.ModifyWord or Op.InPlace.
	OpRMW
	// OpDelete removes the key. It is not an error if there is no record.
	OpDelete
	// OpInsert stores Op.Value if there is no record of the key. Otherwise Op.Err is ErrExists.
	OpInsert

	opNewest // for these three, see trace.go
	opMove
	opLink
	opAbandoned // see Session.abandonBatch

	opKinds
)

// writes reports whether the operation may write the first record of a chain.
func (k OpKind) writes() bool { return k == OpUpsert || k == OpRMW || k == OpInsert }

// changes reports whether the operation may change its key's record.
func (k OpKind) changes() bool { return k.writes() || k == OpDelete }

// ordered reports whether later operations on the key have to wait while an operation of kind
// k is pending.
func (s *Session) ordered(k OpKind) bool {
	return k == OpRMW || k == OpInsert || s.counting && k.changes()
}

// Op is one operation. The caller owns it, and its slices, except from Submit until Poll hands
// it back. Value and Expires are stored by OpUpsert and OpInsert and set by OpRead, so that an
// Op has one buffer for values, and an Op that was read can be stored as it is. Each other
// field is either read or set by an operation.
type Op struct {
	// Kind is read.
	Kind OpKind
	// trace is the number of the session's trace, from 1, for opNewest, opMove and opLink.
	trace uint32
	// Key is read.
	Key []byte
	// Value is read by OpUpsert and OpInsert. OpRead sets it to the value, in Value[:0] grown
	// as needed. Its previous contents are lost, even if there is no record.
	Value []byte
	// Modify is read by OpRMW: the copying form. OpRMW needs Modify or ModifyWord.
	Modify Modifier
	// ModifyWord is read by OpRMW. If it is set, it is called instead of Modify: see
	// [Session.RMWWord].
	ModifyWord WordModifier
	// InPlace is read by OpRMW: it changes the value in the log's memory. It is tried first, if
	// possible. It may be nil.
	InPlace InPlace
	// Expires is the time at which the record expires, in milliseconds of Unix time, at least
	// MinExpires; 0 is never. OpUpsert and OpInsert read it, OpRead sets it. See [ExpiresAt],
	// [ExpiresIn] and [ExpiryTime].
	Expires int64
	// Err is set to the result; ErrNotFound for a read of a key without a record.
	Err error
}

// Update is the argument of a Modifier: a record and its replacement.
type Update struct {
	Found bool
	// Expired is set if the key has a record that has expired. Then Found is false. After the
	// verdict Put or Remove it has none any more.
	Expired bool
	Old     []byte // the current value, nil if there is no record; it must not be kept or written to
	New     []byte // empty at first: the Modifier appends the new value
	Expires int64  // when the record expires, as in Op; also the expiry of the new value unless changed
}

// Verdict is what a Modifier decides.
type Verdict uint8

const (
	// Keep changes nothing. It is the zero value, so that a Modifier that forgets its verdict
	// does not store an empty value.
	Keep Verdict = iota
	// Put stores Update.New and Update.Expires.
	Put
	// Remove deletes the key.
	Remove
)

// Modifier is the copying form of a read-modify-write: it computes the new record from the old
// one. It may be called several times for one operation; the last call counts. Pages are not
// evicted while it runs. So it must be short, have no side effects besides its own result, and
// not use the store.
//
// A call of its session within it is ErrInModifier or, in a store of 8-byte keys and values,
// may be executed as an operation before or after it. If that changes the record, the Modifier
// is called again, and then such a call is refused. A call of another session or of the store may
// wait for the Modifier, and then never returns.
type Modifier func(u *Update) Verdict

// WordModifier is a Modifier of 8-byte values, as numbers. It returns the new value and a
// verdict. old is 0 if there is no value. The rules of Modifier apply.
type WordModifier func(old uint64, found bool) (fresh uint64, verdict Verdict)

// InPlace changes a value in the log's memory, while the record is locked. It returns the value
// in the same memory, with any length up to the capacity of its argument (with the same length
// in a store of fixed sizes), and true; or it returns false, and the Modifier is called. A
// value in other memory, such as that of an append beyond the capacity, counts as false.
//
// InPlace must return false before it changes anything. Bytes that it has changed before it
// returns false or panics stay changed, in the old length. It is not called if there is no
// value, nor for values of up to 8 bytes, for which copying is cheaper. It must not keep the
// memory. The rules of Modifier apply. An operation of another session on the same key waits
// until InPlace returns: for ever, if InPlace waits for that operation.
type InPlace func(value []byte) ([]byte, bool)

// opRing is a first-in, first-out queue of operations with a fixed capacity.
type opRing struct {
	ops        []*Op
	head, used int
}

func (r *opRing) len() int { return r.used }

// push adds an operation. The caller has checked that there is room.
func (r *opRing) push(op *Op) {
	at := r.head + r.used
	if at >= len(r.ops) {
		at -= len(r.ops)
	}
	r.ops[at] = op
	r.used++
}

// pop removes the oldest operation. The caller has checked that there is one.
func (r *opRing) pop() *Op {
	op := r.ops[r.head]
	r.ops[r.head] = nil
	if r.head++; r.head == len(r.ops) {
		r.head = 0
	}
	r.used--
	return op
}

// Batches (Do) and streams (Submit, Poll, Wait) of operations go through the index in lanes:
// see lane.go.

// handBack returns a completed operation to its caller.
func (s *Session) handBack(op *Op, err error, stream bool) {
	op.Err = err
	if stream {
		s.streamed--
		s.polled.push(op)
		return
	}
	s.noteError(err)
}

// noteError keeps the first error of a batch, for Do.
func (s *Session) noteError(err error) {
	if err != nil && s.batchErr == nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrExists) {
		s.batchErr = err
	}
}

// Do executes a batch of operations and returns when all are complete. Device reads are
// pending at the same time. Each operation has its own error in Op.Err. Do returns one of
// these that is neither ErrNotFound nor ErrExists, not necessarily the first in the order of
// the batch. If the session itself fails, Do returns that error, operations may be incomplete,
// and [Session.Err] is not nil.
//
// An operation that has to wait after ctx has ended, see [Session.SetContext], is not
// executed, and its Err is ctx's error. The others are executed.
func (s *Session) Do(ctx context.Context, ops []Op) error {
	if err := s.refusal(); err != nil {
		return err
	}
	before := s.ctx
	s.ctx = ctx
	defer func() { s.ctx = before }() // deferred: a Modifier may panic
	s.flush()
	s.batchErr = nil
	s.allowDirect(false) // stays false if a Modifier panics
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
	s.dropScratch()
	return s.batchErr
}

// DoWhole is Do for a batch that every commit and checkpoint contains whole or not at all.
// Commits and checkpoints wait for its end, and a new DoWhole waits for theirs. With Do, a
// commit may contain an operation and lack an earlier one of the batch that was pending (see
// [CommitPoint]). Other sessions see the changes of the batch one by one, as with Do.
func (s *Session) DoWhole(ctx context.Context, ops []Op) error {
	if len(ops) == 1 || !change(ops) {
		return s.Do(ctx, ops) // one operation is atomic
	}
	return s.Whole(ctx, func() error { return s.Do(ctx, ops) })
}

// Whole calls do, whose changes by this session every commit and checkpoint contains whole or not
// at all, as with [Session.DoWhole]. do may call DoWhole, Whole and [Session.Atomically], and must
// not commit, checkpoint or close the store. What it submits is complete when Whole returns.
func (s *Session) Whole(ctx context.Context, do func() error) (err error) {
	if s.whole || s.holds.adds != 0 {
		return do() // a part of a whole, or of a transaction
	}
	if err := s.refusal(); err != nil {
		return err
	}
	if err := s.completeAll(ctx); err != nil { // of before
		return err
	}
	if err := s.enterSection(ctx); err != nil {
		return err
	}
	s.whole = true
	defer func() {
		if left := s.completeAll(context.Background()); err == nil {
			err = left
		}
		s.whole = false
		s.leaveSection()
	}()
	return do()
}

// Outside calls do outside of the section of Whole, if the session is in one, so that do may commit,
// checkpoint or clear the store, by other sessions. What Whole has changed before is one whole, and what it
// changes afterwards another. Within Atomically it returns ErrHoldsLocks.
func (s *Session) Outside(do func() error) error {
	switch {
	case s.refusal() != nil:
		return s.refusal()
	case s.holds.adds != 0:
		return ErrHoldsLocks
	case !s.whole:
		return do()
	}
	if err := s.completeAll(context.Background()); err != nil {
		return err
	}
	s.leaveSection()
	defer func() { _ = s.enterSection(context.Background()) }() // does not fail without a context that ends
	return do()
}

// change reports whether any of the operations may change a record.
func change(ops []Op) bool {
	for i := range ops {
		if ops[i].Kind.changes() {
			return true
		}
	}
	return false
}

// Submit starts an operation; Poll hands it back when it is complete. If QueueDepth operations
// have not been handed back, Submit returns ErrQueueFull and op is not started. If Submit
// panics, with the Modifier of an earlier operation, op was started.
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
// wait for device reads.
func (s *Session) Poll(done []*Op) int {
	if s.inUserCode {
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
	s.dropScratch()
	return n
}

// Wait waits until Poll has an operation to hand back, or ctx ends. It returns at once if all
// submitted operations have been handed back.
func (s *Session) Wait(ctx context.Context) error {
	if s.inUserCode {
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

// Pending returns the number of submitted operations that were not handed back.
func (s *Session) Pending() int { return s.streamed + s.polled.len() }
