package kv

import "github.com/redykv/redykv/hlog"

// May a record be updated in place? Here is decided that; plain_amd64.s decides the same
// for lock-free values.
//
// The record's address decides first. At or above view.readOnly the record is mutable:
// the log's read-only address or, while a snapshot is taken, the snapshot's end where that
// is higher. Below, sessions whose view is older may still update a record until they have
// left their epoch: that is the fuzzy region, down to the safe read-only address, in which
// an operation that depends on the value has to be retried. Below that, the record is
// immutable and is replaced by a new one at the tail.
//
// The header of a mutable record decides second: sealed and deleted records are not
// updated, nor, by operations that need its lock, a record that is locked or has no
// versions left. [hlog.Record.Lock], LockIf and Bury and [hlog.Layout.StoreWord] and
// SwapWord refuse them, and [hlog.Header.Updatable] tells.

// mutable says whether records at address may be updated in place.
func (v *view) mutable(address int64) bool { return address >= v.readOnly }

// fuzzy says whether another session may still update an address that is not mutable in
// this session's view. The end of a snapshot is set while no session is in an epoch, so
// below it nothing is fuzzy.
func (s *Session) fuzzy(address int64) bool {
	return !s.view.mutable(address) && address >= s.log.SafeReadOnly() && address >= s.store.snapshotTail
}

// lookupMutable returns the newest record of the key where it is mutable. from is the
// newest address of its chain.
func (s *Session) lookupMutable(key []byte, from int64) (r hlog.Record, found bool) {
	r, _, _, found = s.lookup(key, from, s.view.readOnly)
	return r, found
}

// storeInPlace replaces the value and the expiry of a mutable record, and returns whether
// it could.
func (s *Session) storeInPlace(r hlog.Record, value []byte, expires int64) bool {
	if s.layout.LockFree(r.Header()) {
		return expires == 0 && s.layout.StoreWord(r, valueWord(value))
	}
	h, ok := r.Lock()
	if !ok {
		return false
	}
	var was int64
	if s.counting {
		was = s.layout.Expiry(r)
	}
	if !s.layout.Store(r, value, expires) {
		r.UnlockUnchanged(h)
		return false
	}
	r.Unlock(h)
	if s.counting {
		s.recount(true, was, Put, expires)
	}
	return true
}

// updateInPlace applies Op.InPlace to a mutable record, and returns whether it could.
func (s *Session) updateInPlace(op *Op, r hlog.Record) (done bool) {
	if s.layout.WordValues() {
		return false // copying is cheaper, and most of them have no lock
	}
	h, ok := r.Lock()
	if !ok {
		return false
	}
	if s.expired(s.layout.Expiry(r)) {
		r.UnlockUnchanged(h)
		return false
	}
	s.enterUserCode()
	// The user's code may have changed the value also where it returns false or panics.
	defer func() {
		s.leaveUserCode()
		r.Unlock(h)
	}()
	return s.layout.Update(r, op.InPlace)
}
