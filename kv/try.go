package kv

import (
	"fmt"

	"github.com/redykv/redykv/hlog"
)

// outcome is how an attempt in memory ended.
type outcome uint8

const (
	complete    outcome = iota // op has its result
	needsRecord                // the record at coldAt decides, on the device
	needsSpace                 // the log has no room: leave the epoch, wait, try again
	needsQuiet                 // bare.go: leave the epoch, take the next step, try again
	again                      // somebody else is in between: leave the epoch, try again
	barred                     // another session has locked the key: the same
)

// coldAt is a record on the device, the index entry through which it was found,
// and where the log began then, as of one stay in an epoch.
type coldAt struct {
	entry   entry
	address int64
	begin   int64
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
		r = s.view.At(next)
		if s.layout.KeyEqual(r, key) {
			return r, next, 0, true
		}
		next = r.Header().Previous()
	}
	return hlog.Record{}, 0, next, false
}

func (s *Session) tryRead(op *Op, e entry, keep int) (outcome, coldAt) {
	r, _, next, found := s.lookup(op.Key, e.address(), s.view.Head)
	switch begin := s.log.Begin(); {
	case found:
		value, h, expires, ok := s.layout.TryRead(op.Value[:keep], r)
		if !ok {
			return again, coldAt{}
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
		r, _, _, found := s.lookup(op.Key, e.address(), s.view.ReadOnly)
		if found && s.storeInPlace(r, op.Value, op.Expires) {
			return complete
		}
		if found && r.Header().Locked() {
			return again
		}
		if result, ok := s.appendRecord(at, e, op.Key, op.Value, op.Expires, false); ok {
			return result
		}
		if e = at.load(); e.gone() {
			return again
		}
	}
}

func (s *Session) storeInPlace(r hlog.Record, value []byte, expires int64) bool {
	if s.layout.Bare(r.Header()) {
		return expires == 0 && s.layout.StoreWord(r, valueWord(value))
	}
	h, ok := r.Lock()
	if !ok {
		return false
	}
	if !s.layout.Store(r, value, expires) {
		r.UnlockUnchanged(h)
		return false
	}
	r.Unlock(h)
	return true
}

// tryDelete buries what is mutable, and appends a tombstone otherwise; blind,
// as tryUpsert.
func (s *Session) tryDelete(op *Op, at slot, e entry) outcome {
	for e.address() != 0 { // else there is no record of that tag at all
		r, _, _, found := s.lookup(op.Key, e.address(), s.view.ReadOnly)
		if found && (r.Header().Tombstone() || r.Bury()) {
			return complete
		}
		if found && r.Header().Locked() {
			return again
		}
		if result, ok := s.appendRecord(at, e, op.Key, s.zeros, 0, true); ok {
			return result
		}
		if e = at.load(); e.gone() {
			return again
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
	r := s.view.At(address)
	s.layout.Fill(r, hlog.NewHeader(e.address(), tombstone), key, value, expires)
	if !at.swap(e, e.at(address)) {
		r.Invalidate()
		return again, false
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
