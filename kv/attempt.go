package kv

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
)

// The general way of an operation: begin checks it, and attempt tries it in memory until it is
// complete. An operation that needs a record from the device becomes a pending operation
// (pending.go).

// outcome is the result of one attempt in memory.
type outcome uint8

const (
	complete    outcome = iota // op has its result
	needsRecord                // op needs a record on the device: see coldRecord
	needsSpace                 // the log has no room for a record
	needsDrain                 // a record must be sealed or drained first: see sealing
	retry                      // a concurrent change interfered
	keyLocked                  // another session has locked the key
)

// coldRecord is a record on the device that an operation needs.
type coldRecord struct {
	entry   index.Entry // the index entry through which it was found
	address int64
	begin   int64 // the log's begin address at that time
}

// begin starts an operation and reports whether it is complete; if not, it is pending. The
// value that a read finds is appended to op.Value[:keep]. If stream is set, Poll hands the
// operation back.
func (s *Session) begin(op *Op, hash uint64, keep int, stream bool) bool {
	op.Err = s.check(op)
	for op.Err == nil && s.mustWait(hash) {
		op.Err = s.await(s.ctx)
	}
	if op.Err != nil {
		s.refuse()
		return true
	}
	where, cold := s.attempt(op, hash, keep, nil)
	if !cold {
		return true
	}
	if op.Err = s.reservePending(); op.Err != nil {
		s.refuse()
		return true
	}
	s.enter()
	n := s.issue(op, hash, keep, stream, where)
	s.leave()
	s.fetch(n)
	if s.unsubmitted >= doorbellEvery {
		s.submitReads()
	}
	return false
}

// doorbellEvery is the number of reads that are enqueued before they are submitted although
// the session does not wait for them.
const doorbellEvery = 32

var errNoOp = errors.New("kv: the Op is nil")

// check returns the reason why op cannot be executed, or nil.
func (s *Session) check(op *Op) error {
	value := len(op.Value)
	switch op.Kind {
	case OpUpsert, OpInsert:
		if err := checkExpiry(op.Expires); err != nil {
			return err
		}
	case OpRMW:
		if op.Modify == nil && op.ModifyWord == nil {
			return fmt.Errorf("kv: RMW without a Modifier")
		}
		value = s.valueSize
	case OpRead, OpDelete:
		value = s.valueSize
	default:
		if op.trace != 0 {
			return nil // its key and value are those of a record
		}
		return fmt.Errorf("kv: unknown operation %d", op.Kind)
	}
	return s.checkSizes(len(op.Key), value)
}

// CheckSize returns the error, ErrBadSize, of an operation with a key and a value of these sizes in
// bytes, or nil.
func (s *Session) CheckSize(key, value int) error { return s.checkSizes(key, value) }

// CheckSize is [Session.CheckSize] for callers without a session.
func (st *Store) CheckSize(key, value int) error { return checkSizes(st.log, key, value) }

// CheckKey returns the error, ErrBadSize, of an operation with a key of this size in bytes, whatever the
// value, or nil.
func (st *Store) CheckKey(size int) error { return checkSizes(st.log, size, st.opts.ValueSize) }

// checkSizes returns the reason why no record can have a key and a value of these sizes, or
// nil.
func (s *Session) checkSizes(key, value int) error {
	if key == s.keySize && value == s.valueSize && s.fixed {
		return nil
	}
	return checkSizes(s.log, key, value)
}

func checkSizes(log *hlog.Log, key, value int) error {
	layout, page := log.Layout(), log.PageSize()
	err := layout.Check(key, value)
	if err == nil && key == 0 {
		err = errors.New("empty key")
	}
	if size := layout.Size(key, value, true); err == nil && size > page-hlog.FirstAddress {
		err = fmt.Errorf("record of %d bytes does not fit in pages of %d (Options.PageSize)", size, page)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadSize, err)
	}
	return nil
}

// impatience is the number of retries of an operation between two looks at its context.
const impatience = 1 << 10

// attempt tries an operation in memory until it is complete or needs a record from the device.
// In the latter case cold is true, and where is that record. p is op's pending operation, or
// nil.
func (s *Session) attempt(op *Op, hash uint64, keep int, p *pendingOp) (where coldRecord, cold bool) {
	defer func() {
		if s.sealing.needed {
			s.unseal()
		}
		s.endTurn(op.Kind, hash)
	}()
	for tries := 1; ; {
		var err error
		outcome, where := s.try(op, hash, keep, p)
		if outcome != keyLocked {
			s.endTurn(op.Kind, hash) // nobody in line waits for space
		}
		switch outcome {
		case complete:
			return where, false
		case needsRecord:
			return where, true
		case needsSpace:
			if s.sealing.needed { // operations on the key that need no space go on
				s.unseal()
			}
			err = s.waitForSpace()
		case needsDrain:
			s.drainSealed()
		case retry, keyLocked:
			if tries%impatience == 0 && s.ctx.Err() != nil {
				err = fmt.Errorf("kv: waiting for another operation on the key: %w", s.ctx.Err())
			}
			tries++
			switch {
			case err != nil:
			case outcome != keyLocked || tries <= patience:
				runtime.Gosched()
			case s.first:
				time.Sleep(lockNap) // the holder probably waits for a device, or runs for long
			default:
				err = s.store.locks.enterLine(s.ctx, stripeOf(hash), claimOf(op.Kind))
				s.first = err == nil
			}
		}
		if err != nil {
			op.Err = err
			if p == nil {
				s.refuse()
			}
			return where, false
		}
	}
}

// endTurn leaves the line of a key's stripe, if the operation is the first in it.
func (s *Session) endTurn(kind OpKind, hash uint64) {
	if s.first {
		s.first = false
		s.store.locks.leaveLine(stripeOf(hash), claimOf(kind))
	}
}

// waitForSpace waits until the log may have room for a record. The session is outside its epoch.
func (s *Session) waitForSpace() error {
	if err := s.log.WaitForSpace(s.ctx); err != nil {
		return fmt.Errorf("kv: %w", err)
	}
	return nil
}

// try tries an operation once, in one stay in an epoch. It counts a complete operation in the
// same stay, so that a barrier sees both or neither.
func (s *Session) try(op *Op, hash uint64, keep int, p *pendingOp) (result outcome, where coldRecord) {
	s.enter()
	defer s.leaveAnyhow()                // deferred, since the user's code may panic
	if s.view.guarded && op.trace == 0 { // the operations of trace.go change no key's value
		stripe, claim, err, ok := s.pass(op.Kind, op.Key, hash)
		if !ok {
			s.unsealWithin() // the holder of the key's lock must not wait for this session
			return keyLocked, where
		}
		if op.Err = err; stripe != nil {
			defer stripe.release(claim)
		}
	}
	if op.Err == nil {
		result, where = s.tryInEpoch(op, hash, keep)
	}
	if result == complete {
		s.tookEffect(op.Kind, p)
	}
	return result, where
}

// tryInEpoch is the part of try after locks.
func (s *Session) tryInEpoch(op *Op, hash uint64, keep int) (outcome, coldRecord) {
	if op.Kind == opLink {
		return s.tryLink(op)
	}
	place, e, busy := s.view.index.Locate(hash)
	if place.None() && op.Kind.writes() {
		if place, e, op.Err = s.view.index.FindOrInsert(hash); op.Err != nil {
			return complete, coldRecord{}
		}
		busy = place.None()
	}
	if busy {
		return retry, coldRecord{}
	}
	return s.tryAt(op, place, e, keep)
}

// tookEffect counts an operation that has taken effect or ended without one. p is its pending
// operation, which issue has counted, or nil.
func (s *Session) tookEffect(kind OpKind, p *pendingOp) {
	if p == nil {
		s.counts.ops[kind].inc()
	} else {
		p.serial.Store(0)
	}
}

// tryAt tries an operation once inside an epoch. at is the place of its entry in the index, or
// empty for a read or a delete of a key without one.
func (s *Session) tryAt(op *Op, at index.Place, e index.Entry, keep int) (outcome, coldRecord) {
	switch op.Kind {
	case OpRead:
		return s.tryRead(op, e, keep)
	case OpUpsert:
		if !s.countsKey(op.Key) {
			return s.tryUpsert(op, at, e), coldRecord{}
		}
	case OpDelete:
		if !s.countsKey(op.Key) {
			return s.tryDelete(op, at, e), coldRecord{}
		}
	case OpRMW, OpInsert:
	default:
		return s.tryTrace(op, at, e)
	}
	return s.tryRMW(op, at, e)
}

// lookup follows a chain through memory, from the newest record at from down to the
// address lowest, and returns the first record of the key. If there is none, next is the
// chain's next address, which is below lowest, or 0 at the chain's end.
func (s *Session) lookup(key []byte, from, lowest int64) (r hlog.Record, address, next int64, found bool) {
	for next = from; next >= lowest && next != 0; {
		r = s.view.record(next)
		if s.layout.KeyEqual(r, key) {
			return r, next, 0, true
		}
		next = r.Header().Previous()
	}
	return hlog.Record{}, 0, next, false
}

// tryRead tries an OpRead.
func (s *Session) tryRead(op *Op, e index.Entry, keep int) (outcome, coldRecord) {
	r, _, next, found := s.lookup(op.Key, e.Address(), s.view.head)
	switch begin := s.log.Begin(); {
	case found:
		value, h, expires, ok := s.layout.TryRead(op.Value[:keep], r)
		if !ok {
			return retry, coldRecord{}
		}
		if h.Tombstone() || s.expired(expires) {
			op.Value, op.Expires, op.Err = op.Value[:keep], 0, ErrNotFound
		} else {
			op.Value, op.Expires = value, expires
		}
	case next >= begin:
		return needsRecord, coldRecord{e, next, begin}
	default:
		op.Value, op.Expires, op.Err = op.Value[:keep], 0, ErrNotFound
	}
	return complete, coldRecord{}
}

// tryUpsert updates a mutable record in place and appends a new one otherwise. It does not
// seal the record that it replaces: a concurrent update in place began before the new record
// was published, and is ordered before it.
func (s *Session) tryUpsert(op *Op, at index.Place, e index.Entry) outcome {
	for {
		r, found := s.lookupMutable(op.Key, e.Address())
		if found && s.storeInPlace(r, op.Key, op.Value, op.Expires) {
			return complete
		}
		if found && r.Header().Locked() {
			return retry
		}
		if result, ok := s.appendRecord(at, e, op.Key, op.Value, op.Expires, false); ok {
			return result
		}
		if e = at.Load(); e.Moved() {
			return retry
		}
	}
}

// tryDelete makes a mutable record a tombstone in place and appends a tombstone otherwise.
// As in tryUpsert, nothing is sealed.
func (s *Session) tryDelete(op *Op, at index.Place, e index.Entry) outcome {
	for e.Address() != 0 { // an entry without an address has no record
		r, found := s.lookupMutable(op.Key, e.Address())
		if found && (r.Header().Tombstone() || r.Bury()) {
			return complete
		}
		if found && r.Header().Locked() {
			return retry
		}
		if result, ok := s.appendRecord(at, e, op.Key, s.zeros, 0, true); ok {
			return result
		}
		if e = at.Load(); e.Moved() {
			return retry
		}
	}
	return complete
}

// appendRecord writes a record at the tail and makes it the newest of its chain. ok is
// false if another record has become the newest one since e was loaded.
func (s *Session) appendRecord(at index.Place, e index.Entry, key, value []byte, expires int64, tombstone bool) (result outcome, ok bool) {
	address, ok := s.log.Allocate(s.layout.Size(len(key), len(value), expires != 0))
	if !ok {
		return needsSpace, true
	}
	r := s.view.record(address)
	s.layout.Fill(r, hlog.NewHeader(e.Address(), tombstone), key, value, expires)
	if !at.CompareAndSwap(e, e.WithAddress(address)) {
		r.Invalidate()
		return retry, false
	}
	return complete, true
}

// expired reports whether a record with this expiry has expired.
func (s *Session) expired(expires int64) bool { return expires != 0 && expires <= s.store.now() }

// corrupt returns the error for a damaged record read from the device.
func corrupt(address int64, format string, args ...any) error {
	return fmt.Errorf("%w: record at %d: %s", ErrCorrupt, address, fmt.Sprintf(format, args...))
}

// checkExpiry refuses an expiry so early that it is most likely in seconds.
func checkExpiry(expires int64) error {
	if expires == 0 || expires >= MinExpires {
		return nil
	}
	return fmt.Errorf("%w: %d ms of Unix time, want 0 or at least %d, the beginning of 1980; seconds have to be multiplied by 1000",
		ErrBadExpiry, expires, int64(MinExpires))
}
