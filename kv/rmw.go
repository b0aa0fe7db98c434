package kv

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
)

// Read-modify-writes, and operations that are executed as such: inserts, which keep a record
// that exists, and upserts and deletes if keys are counted.

// tryRMW tries such an operation once: it modifies a mutable record in place and otherwise
// appends a record with the modified value.
func (s *Session) tryRMW(op *Op, at index.Place, e index.Entry) (outcome, coldRecord) {
	r, address, next, found := s.lookup(op.Key, e.Address(), s.view.head)
	switch begin := s.log.Begin(); {
	case found:
		return s.modify(op, at, e, r, address), coldRecord{}
	case next >= begin:
		return needsRecord, coldRecord{e, next, begin}
	default:
		return s.replace(op, at, e, nil, 0, false), coldRecord{}
	}
}

// modify is tryRMW for a record in memory. The Modifier gets a copy of the value, without any
// lock. The record is then locked only if its value is still the same.
func (s *Session) modify(op *Op, at index.Place, e index.Entry, r hlog.Record, address int64) outcome {
	if s.fuzzy(address) {
		return retry // until sessions with an older view have left their epoch
	}
	immutable := !s.view.mutable(address)
	if op.InPlace != nil && op.Kind == OpRMW && !immutable && s.updateInPlace(op, r) {
		return complete
	}
	if op.Kind == OpUpsert && !immutable && s.storeInPlace(r, op.Key, op.Value, op.Expires) {
		return complete
	}
	old, h, expires, ok := s.look(op, r, immutable)
	if !ok {
		return retry // the record is locked, perhaps by an InPlace that makes this call
	}
	found := !h.Tombstone() && !s.expired(expires)
	if h.Tombstone() {
		expires = 0
	}
	switch {
	case immutable || h.Tombstone():
		// The value is final. The record may still be sealed, by an operation whose new record
		// was not committed before the store was opened again.
		return s.replace(op, at, e, old, expires, found)
	case s.layout.LockFree(h):
		return s.modifyLockFree(op, at, e, r, address, old)
	case h.Sealed():
		return retry // another operation is publishing a new record
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
		s.recount(op.Key, true, expires, verdict, 0)
		return complete
	}
	if !h.Exhausted() && s.layout.Store(r, s.fresh, s.update.Expires) {
		r.Unlock(h)
		s.recount(op.Key, true, expires, verdict, s.update.Expires)
		return complete
	}
	// The value does not fit, or the record has no versions left: seal the record, so that no
	// update in place comes between this one and the new record.
	r.UnlockSealed(h)
	result, ok := s.appendRecord(at, e, op.Key, s.fresh, s.update.Expires, false)
	if !ok {
		result = retry
	}
	if result != complete {
		r.UnlockUnchanged(h)
		return result
	}
	s.recount(op.Key, true, expires, verdict, s.update.Expires)
	return complete
}

// look returns the value, header and expiry of a record for an operation that changes it. It
// does not read the value of an immutable record if the operation does not depend on it.
func (s *Session) look(op *Op, r hlog.Record, immutable bool) (old []byte, h hlog.Header, expires int64, ok bool) {
	if immutable && (op.Kind == OpUpsert || op.Kind == OpDelete) {
		return nil, r.Header(), s.layout.Expiry(r), true
	}
	s.old, h, expires, ok = s.layout.TryRead(s.old[:0], r)
	return s.old, h, expires, ok
}

// replace appends a record with the result of the operation for old, a final value. expires is
// the old record's expiry, 0 for a tombstone; found is false if there is no old record, or it
// is deleted or has expired.
func (s *Session) replace(op *Op, at index.Place, e index.Entry, old []byte, expires int64, found bool) outcome {
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
		s.recount(op.Key, found || expires != 0, expires, verdict, ends)
	}
	return result
}

// compute returns the operation's verdict on a record, with the new value in s.fresh and the
// new expiry in s.update.
func (s *Session) compute(op *Op, old []byte, expires int64, found bool) (verdict Verdict, err error) {
	lapsed := !found && expires != 0
	counted := s.counting && lapsed // an expired record may still be counted
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
	*s.update = Update{Found: found, Expired: lapsed, Old: old, New: s.fresh[:0], Expires: expires}
	s.allowDirect(false)
	s.inUserCode = true
	if op.ModifyWord == nil {
		verdict = op.Modify(s.update)
	} else {
		verdict, err = modifyAsWord(op.ModifyWord, s.update)
	}
	s.inUserCode = false
	op.Err = nil // see refusedInModifier
	switch {
	case err != nil:
		return Keep, err
	case verdict > Remove:
		return Keep, fmt.Errorf("kv: unknown verdict %d", verdict)
	case verdict == Remove && !found && !lapsed:
		return Keep, nil
	case verdict != Put:
		return verdict, nil
	}
	s.takeFresh(s.update.New)
	if err := checkExpiry(s.update.Expires); err != nil {
		return Put, err
	}
	return Put, s.checkSizes(len(op.Key), len(s.fresh))
}

// modifyAsWord calls a WordModifier instead of a Modifier.
func modifyAsWord(modify WordModifier, u *Update) (Verdict, error) {
	var old uint64
	if u.Found {
		if len(u.Old) != 8 {
			return Keep, fmt.Errorf("%w: the value has %d bytes, a WordModifier needs 8", ErrBadSize, len(u.Old))
		}
		old = binary.LittleEndian.Uint64(u.Old)
	}
	fresh, verdict := modify(old, u.Found)
	u.New = binary.LittleEndian.AppendUint64(u.New, fresh)
	return verdict, nil
}

// keepScratch is the size of the largest old or new value whose memory a session keeps for the next call.
const keepScratch = 1 << 20

// dropScratch frees the memory of large values when a call has ended.
func (s *Session) dropScratch() {
	if most := max(keepScratch, s.valueSize); cap(s.old) > most || cap(s.fresh) > most {
		s.old, s.fresh = nil, nil
		*s.update = Update{}
	}
}

// takeFresh puts a Modifier's Update.New into s.fresh. It copies the value unless the Modifier
// has appended it to s.fresh.
func (s *Session) takeFresh(value []byte) {
	if unsafe.SliceData(value) == unsafe.SliceData(s.fresh) {
		s.fresh = value
		return
	}
	s.fresh = append(s.fresh[:0], value...)
}

// sealing is the progress of an operation in sealing and draining a record with a lock-free
// value (see [hlog.Record]). Two changes need that, because a compare-and-swap of the value
// cannot make them: to delete the record only if it has the value that the Modifier saw, and
// to replace it by a record with an expiry. Sealing takes three tries, and the session leaves
// its epoch between them:
//
//  1. The Modifier returns such a change.
//  2. The record is sealed. Then the session waits until all sessions have left the epochs
//     in which they may have found it unsealed.
//  3. The Modifier is called with the value, which is final now.
type sealing struct {
	needed  bool  // after the first try
	address int64 // of the sealed record, after the second try; else 0
	drained bool  // no other session updates the record any more
}

// modifyLockFree is modify for a mutable record with a lock-free value. old is a copy of the
// value.
func (s *Session) modifyLockFree(op *Op, at index.Place, e index.Entry, r hlog.Record, address int64, old []byte) outcome {
	h := r.Header()
	sealed := s.sealing.address == address // by this operation
	if h.Tombstone() || h.Sealed() && !sealed || sealed && !s.sealing.drained {
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
	case !sealed:
		if r.Seal(h) {
			s.sealing.address = address
			return needsDrain
		}
		return retry
	}
	if verdict == Remove {
		r.BurySealed()
		s.sealing = sealing{}
		s.recount(op.Key, true, 0, verdict, 0)
		return complete
	}
	result, ok := s.appendRecord(at, e, op.Key, s.fresh, s.update.Expires, false)
	if !ok {
		return retry
	}
	if result == complete {
		s.sealing = sealing{} // the old record stays sealed
		s.recount(op.Key, true, 0, verdict, s.update.Expires)
	}
	return result
}

// drainSealed prepares the next try of an operation that seals. The session is outside its epoch.
func (s *Session) drainSealed() {
	if s.sealing.address != 0 {
		s.store.epoch.Wait(s.store.epoch.Bump())
		s.sealing.drained = true
	}
	s.sealing.needed = true
}

// unseal removes the seal of an operation that ended without it.
func (s *Session) unseal() {
	s.enter()
	defer s.leave()
	s.unsealWithin()
}

// unsealWithin is unseal inside an epoch.
func (s *Session) unsealWithin() {
	// In the read-only region a seal has no effect.
	if a := s.sealing.address; a != 0 && a >= s.log.ReadOnly() {
		s.view.record(a).Unseal()
	}
	s.sealing = sealing{}
}
