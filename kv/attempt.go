package kv

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/redykv/redykv/hlog"
)

// The general way of an operation: checked, tried in memory until it is done, and
// given a pending operation where it needs a record from the device.

// outcome is how an attempt in memory ended.
type outcome uint8

const (
	complete    outcome = iota // op has its result
	needsRecord                // the record at coldAt decides, on the device
	needsSpace                 // the log has no room: leave the epoch, wait, try again
	needsDrain                 // rmw.go: leave the epoch, take the next step, try again
	retry                      // somebody else is in between: leave the epoch, try again
	keyLocked                  // another session has locked the key: the same
)

// coldAt is a record on the device, the index entry through which it was found,
// and where the log began then, as of one stay in an epoch.
type coldAt struct {
	entry   entry
	address int64
	begin   int64
}

// begin tries an operation and says whether it is complete; if not, it has a
// pending entry.
func (s *Session) begin(op *Op, hash uint64, keep int, stream bool) bool {
	op.Err = s.check(op)
	for op.Err == nil && s.pendingRMWs[hashByte(hash)] > 0 { // it comes after the one before it on this key
		op.Err = s.await(context.Background())
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

// hashByte are bits of the hash that choose neither bucket nor tag alone.
func hashByte(hash uint64) byte { return byte(hash >> 40) }

var errNoOp = errors.New("kv: a nil Op")

// check refuses what cannot be a record.
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
			return nil // its record is one already
		}
		return fmt.Errorf("kv: unknown operation %d", op.Kind)
	}
	return s.checkSizes(len(op.Key), value)
}

func (s *Session) checkSizes(key, value int) error {
	if key == s.keySize && value == s.valueSize && s.fixed {
		return nil
	}
	err := s.layout.Check(key, value)
	if err == nil && key == 0 {
		err = errors.New("empty key")
	}
	if size := s.layout.Size(key, value, true); err == nil && size > s.log.PageSize()-hlog.FirstAddress {
		err = fmt.Errorf("record of %d bytes in pages of %d (Options.PageSize)", size, s.log.PageSize())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadSize, err)
	}
	return nil
}

// attempt tries an operation in memory until it is complete or needs a record
// from the device: then cold is true, and where says which. f is the pending operation that
// it has already, or nil.
func (s *Session) attempt(op *Op, hash uint64, keep int, f *pendingOp) (where coldAt, cold bool) {
	var trust func() // ends the suspicion that there is
	defer func() {
		if s.sealing.needed {
			s.unseal()
		}
		if trust != nil {
			trust()
		}
	}()
	for tries := 1; ; {
		var err error
		outcome, where := s.try(op, hash, keep, f)
		switch outcome {
		case complete:
			return where, false
		case needsRecord:
			return where, true
		case needsSpace:
			err = s.waitForSpace()
		case needsDrain:
			err = s.drainSealed()
		case retry, keyLocked:
			if tries%impatience == 0 {
				err = s.store.mayTry(outcome)
				if err == nil && op.Kind == OpRMW && trust == nil && outcome == retry {
					trust = s.store.suspect(s)
				}
			}
			tries++
			runtime.Gosched()
		}
		if err != nil {
			op.Err = err
			if f == nil {
				s.refuse()
			}
			return where, false
		}
	}
}

// waitForSpace returns when the log may have room for a record again. The session is
// outside its epoch. Within a Modifier it does not wait: pages are evicted only when that
// Modifier's session has left its epoch.
func (s *Session) waitForSpace() error {
	if err := s.store.inModifier(); err != nil {
		return err
	}
	if err := s.log.WaitForSpace(); err != nil {
		return fmt.Errorf("kv: %w", err)
	}
	return nil
}

// try is one attempt under one epoch, in which it also notes that the operation
// is complete. Should the user's code panic in there, the deferred leave keeps it
// from holding the store up.
func (s *Session) try(op *Op, hash uint64, keep int, f *pendingOp) (result outcome, where coldAt) {
	s.enter()
	defer s.leaveAnyhow()
	if s.view.guarded && op.trace == 0 { // a trace changes nothing that anybody sees
		stripe, claim, err, ok := s.pass(op.Kind, hash)
		if !ok {
			s.unsealWithin() // who has locked the key must not wait for this session
			return keyLocked, where
		}
		if op.Err = err; stripe != nil {
			defer stripe.release(claim)
		}
	}
	if op.Err == nil {
		result, where = s.tryWithin(op, hash, keep)
	}
	if result == complete {
		s.tookEffect(op.Kind, f)
	}
	return result, where
}

// tryWithin is try within its epoch.
func (s *Session) tryWithin(op *Op, hash uint64, keep int) (outcome, coldAt) {
	if op.Kind == opLink {
		return s.tryLink(op)
	}
	slot, e, busy := s.view.index.locate(hash)
	if slot.p == nil && op.Kind.writes() {
		if slot, e, op.Err = s.view.index.findOrInsert(hash); op.Err != nil {
			return complete, coldAt{}
		}
		busy = slot.p == nil
	}
	if busy {
		return retry, coldAt{}
	}
	return s.tryAt(op, slot, e, keep)
}

// tookEffect notes that an operation has taken effect, or will have none. f is its
// pending entry, if it has one.
func (s *Session) tookEffect(kind OpKind, f *pendingOp) {
	if f == nil {
		s.counts.ops[kind].inc()
	} else {
		f.serial.Store(0)
	}
}

// tryAt is one attempt at an operation inside an epoch, given its place in the
// index: an empty slot where a read or a delete found none.
func (s *Session) tryAt(op *Op, at slot, e entry, keep int) (outcome, coldAt) {
	switch op.Kind {
	case OpRead:
		return s.tryRead(op, e, keep)
	case OpUpsert:
		if !s.counting {
			return s.tryUpsert(op, at, e), coldAt{}
		}
	case OpDelete:
		if !s.counting {
			return s.tryDelete(op, at, e), coldAt{}
		}
	case OpRMW, OpInsert:
	default:
		return s.tryTrace(op, at, e)
	}
	return s.tryRMW(op, at, e)
}

// lookup walks a chain through memory, from the newest record down to floor,
// and returns the record of the key. If there is none, next is where the chain
// goes on: below floor, or 0 at its end.
func (s *Session) lookup(key []byte, from, floor int64) (r hlog.Record, address, next int64, found bool) {
	for next = from; next >= floor && next != 0; {
		r = s.view.record(next)
		if s.layout.KeyEqual(r, key) {
			return r, next, 0, true
		}
		next = r.Header().Previous()
	}
	return hlog.Record{}, 0, next, false
}

func (s *Session) tryRead(op *Op, e entry, keep int) (outcome, coldAt) {
	r, _, next, found := s.lookup(op.Key, e.address(), s.view.head)
	switch begin := s.log.Begin(); {
	case found:
		value, h, expires, ok := s.layout.TryRead(op.Value[:keep], r)
		if !ok {
			return retry, coldAt{}
		}
		if h.Tombstone() || s.expired(expires) {
			op.Value, op.Expires, op.Err = op.Value[:keep], 0, ErrNotFound
		} else {
			op.Value, op.Expires = value, expires
		}
	case next >= begin:
		return needsRecord, coldAt{e, next, begin}
	default:
		op.Value, op.Expires, op.Err = op.Value[:keep], 0, ErrNotFound
	}
	return complete, coldAt{}
}

// tryUpsert updates in place what is mutable, and appends otherwise. It need not
// seal what it replaces: an update in place that still goes on there began
// before the new record was published, and counts as before it.
func (s *Session) tryUpsert(op *Op, at slot, e entry) outcome {
	for {
		r, found := s.lookupMutable(op.Key, e.address())
		if found && s.storeInPlace(r, op.Value, op.Expires) {
			return complete
		}
		if found && r.Header().Locked() {
			return retry
		}
		if result, ok := s.appendRecord(at, e, op.Key, op.Value, op.Expires, false); ok {
			return result
		}
		if e = at.load(); e.gone() {
			return retry
		}
	}
}

// tryDelete buries what is mutable, and appends a tombstone otherwise; blind,
// as tryUpsert.
func (s *Session) tryDelete(op *Op, at slot, e entry) outcome {
	for e.address() != 0 { // else there is no record of that tag at all
		r, found := s.lookupMutable(op.Key, e.address())
		if found && (r.Header().Tombstone() || r.Bury()) {
			return complete
		}
		if found && r.Header().Locked() {
			return retry
		}
		if result, ok := s.appendRecord(at, e, op.Key, s.zeros, 0, true); ok {
			return result
		}
		if e = at.load(); e.gone() {
			return retry
		}
	}
	return complete
}

// appendRecord puts a record at the tail and makes it the newest of its chain.
// ok is false where the chain has got another one since e was read.
func (s *Session) appendRecord(at slot, e entry, key, value []byte, expires int64, tombstone bool) (result outcome, ok bool) {
	address, ok := s.log.Allocate(s.layout.Size(len(key), len(value), expires != 0))
	if !ok {
		return needsSpace, true
	}
	r := s.view.record(address)
	s.layout.Fill(r, hlog.NewHeader(e.address(), tombstone), key, value, expires)
	if !at.swap(e, e.at(address)) {
		r.Invalidate()
		return retry, false
	}
	return complete, true
}

// expired says whether a record of that expiry is no more.
func (s *Session) expired(expires int64) bool { return expires != 0 && expires <= s.store.now() }

// corrupt says what is wrong with a record that came from the device.
func corrupt(address int64, format string, args ...any) error {
	return fmt.Errorf("%w: record at %d: %s", ErrCorrupt, address, fmt.Sprintf(format, args...))
}

// checkExpiry refuses the expiry of a record to be written that cannot be meant.
func checkExpiry(expires int64) error {
	if expires == 0 || expires >= MinExpires {
		return nil
	}
	return fmt.Errorf("%w: %d ms of Unix time, want 0 or at least %d, the beginning of 1980; seconds have to be multiplied by 1000",
		ErrBadExpiry, expires, int64(MinExpires))
}
