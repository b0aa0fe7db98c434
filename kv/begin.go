package kv

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/redykv/redykv/hlog"
)

// The general way of an operation: checked, tried in memory until it is done, and
// given a flight where it needs a record from the device.

// begin tries an operation and says whether it is complete; if not, it has a
// flight.
func (s *Session) begin(op *Op, hash uint64, keep int, stream bool) bool {
	op.Err = s.check(op)
	for op.Err == nil && s.rmws[hashByte(hash)] > 0 { // it comes after the one before it on this key
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
	if op.Err = s.board(); op.Err != nil {
		s.refuse()
		return true
	}
	s.enter()
	n := s.depart(op, hash, keep, stream, where)
	s.leave()
	s.seek(n)
	if s.unrung >= doorbellEvery {
		s.ring()
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
// from the device: then cold is true, and where says which. f is the flight that
// it has already, or nil.
func (s *Session) attempt(op *Op, hash uint64, keep int, f *flight) (where coldAt, cold bool) {
	var trust func() // ends the suspicion that there is
	defer func() {
		if s.frozen.asked {
			s.thaw()
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
		case needsQuiet:
			err = s.quieten()
		case again, barred:
			if tries%impatience == 0 {
				err = s.store.mayTry(outcome)
				if err == nil && op.Kind == OpRMW && trust == nil && outcome == again {
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
func (s *Session) try(op *Op, hash uint64, keep int, f *flight) (result outcome, where coldAt) {
	s.enter()
	defer s.leaveAnyhow()
	if s.restricted && op.trace == 0 { // a trace changes nothing that anybody sees
		stripe, claim, err, ok := s.pass(op.Kind, hash)
		if !ok {
			s.thawWithin() // who has locked the key must not wait for this session
			return barred, where
		}
		if op.Err = err; stripe != nil {
			defer stripe.release(claim)
		}
	}
	if op.Err == nil {
		result, where = s.tryWithin(op, hash, keep)
	}
	if result == complete {
		s.completed(op.Kind, f)
	}
	return result, where
}

// tryWithin is try within its epoch.
func (s *Session) tryWithin(op *Op, hash uint64, keep int) (outcome, coldAt) {
	if op.Kind == opLink {
		return s.tryLink(op)
	}
	slot, e, busy := s.table.locate(hash)
	if slot.p == nil && op.Kind.writes() {
		if slot, e, op.Err = s.table.findOrInsert(hash); op.Err != nil {
			return complete, coldAt{}
		}
		busy = slot.p == nil
	}
	if busy {
		return again, coldAt{}
	}
	return s.tryAt(op, slot, e, keep)
}

// completed notes that an operation has taken effect, or will have none. f is its
// flight, if it has one.
func (s *Session) completed(kind OpKind, f *flight) {
	if f == nil {
		s.counts.ops[kind].inc()
	} else {
		f.serial.Store(0)
	}
}
