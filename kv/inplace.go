package kv

import (
	"bytes"
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

// This file decides whether a record may be updated in place; plain_amd64.s decides the same
// for lock-free values.
//
// The record's address decides first. At or above view.readOnly the record is mutable.
// view.readOnly is the log's read-only address or, while a snapshot is taken, the snapshot's
// end if that is higher. Below it is the fuzzy region, down to the safe read-only address:
// there a session whose view is older may still update a record until it leaves its epoch, so
// an operation that depends on the value has to be retried. Below that, the record is
// immutable and is replaced by a new one at the tail.
//
// The header of a mutable record decides second: sealed and deleted records are not updated.
// Operations that need the record's lock also do not update a record that is locked or has no
// versions left. [hlog.Record.Lock], LockIf and Bury and [hlog.Layout.StoreWord] and SwapWord
// refuse these records, and [hlog.Header.Updatable] reports them.

// mutable reports whether records at address may be updated in place.
func (v *view) mutable(address int64) bool { return address >= v.readOnly }

// fuzzy reports whether another session may still update an address that is not mutable in
// this session's view. The end of a snapshot is set while no session is in an epoch, so below
// it nothing is fuzzy.
func (s *Session) fuzzy(address int64) bool {
	return !s.view.mutable(address) && address >= s.log.SafeReadOnly() && address >= s.store.snapshotTail
}

// lookupMutable returns the newest record of the key if it is mutable. from is the newest
// address of its chain.
func (s *Session) lookupMutable(key []byte, from int64) (r hlog.Record, found bool) {
	r, _, _, found = s.lookup(key, from, s.view.readOnly)
	return r, found
}

// storeInPlace replaces the value and the expiry of a mutable record, and reports whether it
// did.
func (s *Session) storeInPlace(r hlog.Record, key, value []byte, expires int64) bool {
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
		s.recount(key, true, was, Put, expires)
	}
	return true
}

// updateInPlace applies Op.InPlace to a mutable record, and reports whether it did.
func (s *Session) updateInPlace(op *Op, r hlog.Record) (done bool) {
	if s.layout.WordValues() {
		return false // copying is cheaper, and most such records have no lock
	}
	h, ok := r.Lock()
	if !ok {
		return false
	}
	if s.expired(s.layout.Expiry(r)) {
		r.UnlockUnchanged(h)
		return false
	}
	s.inUserCode = true
	// The user's code may change the value even if it returns false or panics.
	defer func() {
		s.inUserCode = false
		r.Unlock(h)
	}()
	return s.layout.Update(r, op.InPlace)
}

// Keys and values of 8 bytes are handled as words: most stores of very many records have
// these, and each instruction counts for them.

// loadWord returns the first 8 bytes of b as a word.
func loadWord(b []byte) uint64 { return *(*uint64)(unsafe.Pointer(unsafe.SliceData(b))) }

// word returns the bytes of *p. They share its memory.
func word(p *uint64) []byte { return (*[8]byte)(unsafe.Pointer(p))[:] }

// valueWord returns a value of up to 8 bytes as the word that is stored in the log.
func valueWord(value []byte) (word uint64) {
	if len(value) == 8 {
		return loadWord(value)
	}
	copy((*[8]byte)(unsafe.Pointer(&word))[:], value)
	return word
}

// sameKey is bytes.Equal, with a fast case for keys of 8 bytes.
func sameKey(a, b []byte) bool {
	if len(a) == 8 && len(b) == 8 {
		return loadWord(a) == loadWord(b)
	}
	return bytes.Equal(a, b)
}

// finishWords executes the lane's operations from its next one on, up to the first one that is
// not a most frequent case of tryAt: the key's record is in memory and the newest of its
// chain, and the operation needs no new record. The operation at which it stops has changed
// nothing, but its Modifier may have been called, and will be called again. It is one loop
// since a function call per operation takes a third more time.
func (s *Session) finishWords(l *lane) {
	for i := l.next; i < l.n; i++ {
		op, at := l.ops[i&(laneSize-1)], l.places[i&(laneSize-1)]
		if at.None() {
			return
		}
		a := at.Load().Address()
		if a < s.view.head || len(op.Key) != 8 {
			return
		}
		r := s.view.record(a)
		if r.Word0() != loadWord(op.Key) {
			return
		}
		if op.Err != nil { // a store only if needed
			op.Err = nil
		}
		switch op.Kind {
		case OpRead:
			if !r.Header().Plain() || cap(op.Value) < 8 {
				return
			}
			op.Value = op.Value[:8] // unlike append, without a write barrier
			*(*uint64)(unsafe.Pointer(unsafe.SliceData(op.Value))) = r.Word1()
			op.Expires = 0
		case OpUpsert:
			if !s.view.mutable(a) || op.Expires != 0 || len(op.Value) != 8 || !s.layout.StoreWord(r, loadWord(op.Value)) {
				return
			}
		case OpRMW:
			if !s.view.mutable(a) || !r.Header().Updatable() {
				return
			}
			l.next = i + 1 // if the Modifier panics: see abandon
			old, fresh, verdict := r.Word1(), uint64(0), Keep
			if op.ModifyWord != nil {
				fresh, verdict = op.ModifyWord(old, true)
			} else if op.Modify != nil {
				fresh, verdict = s.modifyWord(op.Modify, old)
			}
			if verdict != Put || !r.SwapWord1(old, fresh) {
				l.next = i
				return
			}
		default:
			return
		}
		s.counts.ops[op.Kind].inc()
		l.next = i + 1
		if l.stream {
			s.streamed--
			s.polled.push(op)
		}
	}
}

// modifyWord calls a Modifier as a WordModifier. It returns Keep for any result that a
// WordModifier cannot return; the Modifier is then called again on the general way.
func (s *Session) modifyWord(modify Modifier, old uint64) (fresh uint64, verdict Verdict) {
	s.oldWord = old
	*s.update = s.form
	u := s.update
	if modify(u) != Put || u.Expires != 0 || len(u.New) != 8 {
		return 0, Keep
	}
	return loadWord(u.New), Put
}
