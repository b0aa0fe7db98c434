package kv

import (
	"encoding/binary"
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

// Records of 8-byte keys and values are the most common ones of which there are
// very many, and so small that every instruction shows: for them tryAt's most
// frequent cases are written out here, on words instead of slices. What is not one
// of these cases returns false, having done nothing.

// loadWord are 8 bytes as a word.
func loadWord(b []byte) uint64 { return *(*uint64)(unsafe.Pointer(unsafe.SliceData(b))) }

// valueWord is a value of up to 8 bytes as a word, as it lies in the log.
func valueWord(value []byte) (word uint64) {
	if len(value) == 8 {
		return loadWord(value)
	}
	copy((*[8]byte)(unsafe.Pointer(&word))[:], value)
	return word
}

// tryWords is tryAt for the newest record of a chain, in memory, of a batch or a
// stream.
func (s *Session) tryWords(op *Op, e entry) bool {
	a := e.address()
	if a < s.probe.head || len(op.Key) != 8 {
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
		if cap(op.Value) >= 8 {
			op.Value = op.Value[:8] // which stores no pointer, as append would
			*(*uint64)(unsafe.Pointer(unsafe.SliceData(op.Value))) = r.Word1()
		} else {
			op.Value = binary.LittleEndian.AppendUint64(nil, r.Word1())
		}
		op.Expires = 0
	case OpUpsert:
		if a < s.probe.readOnly || op.Expires != 0 || len(op.Value) != 8 || !s.layout.StoreWord(r, loadWord(op.Value)) {
			return false
		}
	case OpRMW:
		if a < s.probe.readOnly || !s.modifyWord(op, r) {
			return false
		}
	default:
		return false
	}
	s.counts.ops[op.Kind].inc()
	return true
}

// modifyWord is modify for a value that stays where it is.
func (s *Session) modifyWord(op *Op, r hlog.Record) bool {
	h, old := r.Header(), r.Word1()
	if !h.Updatable() {
		return false
	}
	if op.ModifyWord != nil {
		fresh, verdict := op.ModifyWord(old, true)
		return verdict == Put && r.SwapWord1(old, fresh)
	}
	if op.Modify == nil {
		return false
	}
	s.oldWord = old
	*s.update = s.form
	u := s.update
	if op.Modify(u) != Put || u.Expires != 0 || len(u.New) != 8 {
		return false
	}
	return r.SwapWord1(old, loadWord(u.New))
}

// word are the bytes of a word.
func word(p *uint64) []byte { return (*[8]byte)(unsafe.Pointer(p))[:] }
