package kv

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

// tryRMW modifies in place what is mutable; otherwise it copies the modified
// value to the tail. An insert is a read-modify-write that keeps what it finds;
// where keys are counted, upserts and deletes are read-modify-writes too.
func (s *Session) tryRMW(op *Op, at slot, e entry) (outcome, coldAt) {
	r, address, next, found := s.lookup(op.Key, e.address(), s.view.head)
	switch begin := s.log.Begin(); {
	case found:
		return s.modify(op, at, e, r, address), coldAt{}
	case next >= begin:
		return needsRecord, coldAt{e, next, begin}
	default:
		return s.replace(op, at, e, nil, 0, false), coldAt{}
	}
}

// modify is RMW on a record in memory. The Modifier runs on a copy, outside any
// lock; the lock is then taken only if the value is still the one it saw.
func (s *Session) modify(op *Op, at slot, e entry, r hlog.Record, address int64) outcome {
	if s.fuzzy(address) {
		return retry // until the session that may be updating it has left its epoch
	}
	immutable := !s.view.mutable(address)
	if op.InPlace != nil && op.Kind == OpRMW && !immutable && s.updateInPlace(op, r) {
		return complete
	}
	if op.Kind == OpUpsert && !immutable && s.storeInPlace(r, op.Value, op.Expires) {
		return complete
	}
	old, h, expires, ok := s.look(op, r, immutable)
	if !ok {
		return retry // locked, perhaps by the InPlace in which this is called
	}
	found := !h.Tombstone() && !s.expired(expires)
	if h.Tombstone() {
		expires = 0
	}
	switch {
	case immutable || h.Tombstone():
		// Nobody changes it. It may even be sealed: by a replacement that was
		// never committed, before the store was opened again.
		return s.replace(op, at, e, old, expires, found)
	case s.layout.Bare(h):
		return s.modifyLockFree(op, at, e, r, address, old)
	case h.Sealed():
		return retry // its replacement is being published
	}
	verdict, err := s.compute(op, old, expires, found)
	if err != nil || verdict == Keep {
		op.Err = err
		return complete
	}
	if !r.LockIf(h) {
		return retry
	}
	if verdict == Remove {
		r.UnlockBuried(h)
		s.recount(true, expires, verdict, 0)
		return complete
	}
	if !h.Exhausted() && s.layout.Store(r, s.fresh, s.update.Expires) {
		r.Unlock(h)
		s.recount(true, expires, verdict, s.update.Expires)
		return complete
	}
	// It does not fit its place, or is out of versions: seal it, so that no update
	// in place is lost between here and the new record.
	r.UnlockSealed(h)
	result, ok := s.appendRecord(at, e, op.Key, s.fresh, s.update.Expires, false)
	if !ok {
		result = retry
	}
	if result != complete {
		r.UnlockUnchanged(h)
		return result
	}
	s.recount(true, expires, verdict, s.update.Expires)
	return complete
}

// look reads a record that an operation changes. What is read-only and replaced
// whatever it is, need not be read for that.
func (s *Session) look(op *Op, r hlog.Record, immutable bool) (old []byte, h hlog.Header, expires int64, ok bool) {
	if immutable && (op.Kind == OpUpsert || op.Kind == OpDelete) {
		return nil, r.Header(), s.layout.Expiry(r), true
	}
	s.old, h, expires, ok = s.layout.TryRead(s.old[:0], r)
	return s.old, h, expires, ok
}

// replace appends what the Modifier makes of old, which nobody changes any
// more. expires is 0 for what was deleted.
func (s *Session) replace(op *Op, at slot, e entry, old []byte, expires int64, found bool) outcome {
	verdict, err := s.compute(op, old, expires, found)
	if err != nil || verdict == Keep {
		op.Err = err
		return complete
	}
	value, ends := s.fresh, s.update.Expires
	if verdict == Remove {
		value, ends = s.zeros, 0
	}
	result, ok := s.appendRecord(at, e, op.Key, value, ends, verdict == Remove)
	if !ok {
		return retry
	}
	if result == complete {
		s.recount(found || expires != 0, expires, verdict, ends)
	}
	return result
}

// compute asks what becomes of a record, and puts its new value into s.fresh and
// its new expiry into s.update.
func (s *Session) compute(op *Op, old []byte, expires int64, found bool) (verdict Verdict, err error) {
	counted := s.counting && !found && expires != 0 // a record that has expired may be counted still
	if !found {
		old, expires = nil, 0
	}
	switch op.Kind {
	case OpInsert, OpUpsert:
		if found && op.Kind == OpInsert {
			return Keep, ErrExists
		}
		s.fresh = append(s.fresh[:0], op.Value...)
		s.update.Expires = op.Expires
		return Put, nil
	case OpDelete:
		if !found && !counted {
			return Keep, nil
		}
		return Remove, nil
	}
	*s.update = Update{Found: found, Old: old, New: s.fresh[:0], Expires: expires}
	s.allowDirect(false)
	s.asking()
	if op.ModifyWord == nil {
		verdict = op.Modify(s.update)
	} else {
		verdict, err = askWord(op.ModifyWord, s.update)
	}
	s.asked()
	op.Err = nil // see refusedInModifier
	switch {
	case err != nil:
		return Keep, err
	case verdict > Remove:
		return Keep, fmt.Errorf("kv: unknown verdict %d", verdict)
	case verdict == Remove && !found && !counted:
		return Keep, nil // there is nothing to remove
	case verdict != Put:
		return verdict, nil
	}
	s.takeFresh(s.update.New)
	if err := checkExpiry(s.update.Expires); err != nil {
		return Put, err
	}
	return Put, s.checkSizes(len(op.Key), len(s.fresh))
}

// askWord asks a WordModifier what a Modifier would be asked.
func askWord(modify WordModifier, u *Update) (Verdict, error) {
	var old uint64
	if u.Found {
		if len(u.Old) != 8 {
			return Keep, fmt.Errorf("%w: a value of %d bytes is no word", ErrBadSize, len(u.Old))
		}
		old = binary.LittleEndian.Uint64(u.Old)
	}
	fresh, verdict := modify(old, u.Found)
	u.New = binary.LittleEndian.AppendUint64(u.New, fresh)
	return verdict, nil
}

// takeFresh makes the value s.fresh that a Modifier has left in Update.New: as it
// is, where it was appended to that, and else a copy. It may be Update.Old.
func (s *Session) takeFresh(value []byte) {
	if unsafe.SliceData(value) == unsafe.SliceData(s.fresh) {
		s.fresh = value
		return
	}
	s.fresh = append(s.fresh[:0], value...)
}

// sealing is a bare record (see [hlog.Record]) that an operation has sealed, to
// do what a compare-and-swap of its value cannot: to delete it only if the value
// is what the Modifier saw, or to replace it by a record with an expiry. In steps,
// between which the session leaves its epoch:
//
//	a first attempt finds out that it is needed     needed
//	the next one seals the record                   address
//	everybody who could be updating it has left     drained
//	a third one asks the Modifier about the value as it is now, its last
type sealing struct {
	needed  bool
	address int64
	drained bool
}

// modifyLockFree is modify for a bare record in the mutable region, whose value was
// old a moment ago.
func (s *Session) modifyLockFree(op *Op, at slot, e entry, r hlog.Record, address int64, old []byte) outcome {
	h := r.Header()
	mine := s.sealing.address == address
	if h.Tombstone() || h.Sealed() && !mine || mine && !s.sealing.drained {
		return retry
	}
	verdict, err := s.compute(op, old, 0, true)
	switch {
	case err != nil || verdict == Keep:
		op.Err = err
		return complete
	case verdict == Put && s.update.Expires == 0:
		if !s.layout.SwapWord(r, valueWord(old), valueWord(s.fresh)) {
			return retry
		}
		return complete
	case !s.sealing.needed:
		return needsDrain
	case !mine:
		if r.Seal(h) {
			s.sealing.address = address
			return needsDrain
		}
		return retry
	}
	if verdict == Remove {
		r.BurySealed()
		s.sealing = sealing{}
		s.recount(true, 0, verdict, 0)
		return complete
	}
	result, ok := s.appendRecord(at, e, op.Key, s.fresh, s.update.Expires, false)
	if !ok {
		return retry
	}
	if result == complete {
		s.sealing = sealing{} // sealed for good
		s.recount(true, 0, verdict, s.update.Expires)
	}
	return result
}

// drainSealed takes the next step of freezing, outside the epoch. It does not wait for the
// epoch of a session within whose Modifier it is called.
func (s *Session) drainSealed() error {
	if s.sealing.address != 0 {
		if err := s.store.inModifier(); err != nil {
			return err
		}
		s.store.epoch.Wait(s.store.epoch.Bump())
		s.sealing.drained = true
	}
	s.sealing.needed = true
	return nil
}

// unseal ends freezing when the operation has ended some other way.
func (s *Session) unseal() {
	s.enter()
	defer s.leave()
	s.unsealWithin()
}

// unsealWithin is unseal within an epoch.
func (s *Session) unsealWithin() {
	// In the read-only region a seal has no effect.
	if a := s.sealing.address; a != 0 && a >= s.log.ReadOnly() {
		s.view.record(a).Unseal()
	}
	s.sealing = sealing{}
}
