package kv

import (
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

// Records of 8-byte keys and values of up to 8 bytes are the most common ones
// of which there are very many, and so small that every instruction shows: for
// them tryAt's most frequent cases are written out here, on words instead of
// slices. What is not one of these cases returns false, having done nothing.

// loadWord is a key of 8 bytes as a word.
func loadWord(key []byte) uint64 { return *(*uint64)(unsafe.Pointer(unsafe.SliceData(key))) }

// hashOf is the hash of a key.
func (s *Session) hashOf(key []byte) uint64 {
	if s.words && len(key) == 8 {
		return hashWord(loadWord(key))
	}
	return s.hash(key)
}

// appendWord appends the bytes of a value of up to a word.
func (s *Session) appendWord(dst []byte, word uint64) []byte {
	if s.valueSize == 8 {
		return append(dst, (*[8]byte)(unsafe.Pointer(&word))[:]...)
	}
	return append(dst, (*[8]byte)(unsafe.Pointer(&word))[:s.valueSize]...)
}

// valueWord is the inverse of appendWord.
func valueWord(value []byte) (word uint64) {
	if len(value) == 8 {
		return loadWord(value)
	}
	copy((*[8]byte)(unsafe.Pointer(&word))[:], value)
	return word
}

// readWord is Read of a record in memory.
func (s *Session) readWord(key []byte) (word uint64, ok bool) {
	k := loadWord(key)
	hash := hashWord(k)
	s.enter()
	_, e := s.table.find(hash)
	if a := e.address(); a >= s.view.Head && !s.restricted {
		if r := s.view.At(a); r.Word0() == k && r.Header().Plain() {
			word, ok = r.Word1(), true
			s.counts.readFromMemory()
		}
	}
	s.leave()
	return word, ok
}

// upsertWord is Upsert of a record in the mutable region.
func (s *Session) upsertWord(key, value []byte) (ok bool) {
	k := loadWord(key)
	hash := hashWord(k)
	s.enter()
	_, e := s.table.find(hash)
	if a := e.address(); a >= s.view.ReadOnly && !s.restricted {
		if r := s.view.At(a); r.Word0() == k && r.StoreWord1(valueWord(value)) {
			ok = true
			s.counts.finished(OpUpsert, fromMemory)
		}
	}
	s.leave()
	return ok
}

// tryWords is tryAt for the newest record of a chain, in memory.
func (s *Session) tryWords(op *Op, e entry) bool {
	a := e.address()
	if a < s.view.Head || len(op.Key) != 8 {
		return false
	}
	r := s.view.At(a)
	if r.Word0() != loadWord(op.Key) {
		return false
	}
	switch op.Kind {
	case OpRead:
		if !r.Header().Plain() {
			return false
		}
		op.Value = s.appendWord(op.Value[:0], r.Word1())
		op.Expires = 0
		s.counts.readFromMemory()
		return true
	case OpUpsert:
		if a < s.view.ReadOnly || op.Expires != 0 || len(op.Value) != s.valueSize || !r.StoreWord1(valueWord(op.Value)) {
			return false
		}
		s.counts.finished(OpUpsert, fromMemory)
		return true
	case OpRMW:
		return a >= s.view.ReadOnly && op.Modify != nil && s.modifyWord(op, r)
	}
	return false
}

// modifyWord is modify for a value that stays where it is.
func (s *Session) modifyWord(op *Op, r hlog.Record) bool {
	h, old := r.Header(), r.Word1()
	if !h.Updatable() {
		return false
	}
	s.old = s.appendWord(s.old[:0], old)
	s.update = Update{Found: true, Old: s.old, New: s.fresh[:0]}
	verdict := op.Modify(&s.update)
	s.fresh = s.update.New
	if verdict != Put || s.update.Expires != 0 || len(s.fresh) != s.valueSize {
		return false
	}
	if !r.SwapWord1(h, old, valueWord(s.fresh)) {
		return false
	}
	s.counts.finished(OpRMW, fromMemory)
	return true
}
