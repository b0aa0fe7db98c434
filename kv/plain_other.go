//go:build !amd64 || race

package kv

import (
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

// What plain_amd64.s does, in Go.

const inAssembly = false

// straight enters the epoch and finds the record of a key that a plain call may go
// straight to, at or above floor. If there is none it is nil, and the session
// outside.
func (s *Session) straight(key []byte, floor int64) unsafe.Pointer {
	if s.probe.narrow == 0 {
		return nil
	}
	if s.slot.Reenter(s.probe.narrow) && len(key) == 8 {
		if p := s.probe.record(loadWord(key), floor); p != nil {
			return p
		}
	}
	s.leave()
	return nil
}

// record is that of a key, if it is the newest of its chain, found in the first
// bucket, and at or above floor, which is not below head.
func (p *probe) record(key uint64, floor int64) unsafe.Pointer {
	at := p.slotOf(p.hash.of(key))
	if at.p == nil {
		return nil
	}
	a := at.load().address()
	if a < floor {
		return nil
	}
	record := unsafe.Add(p.frames, a&p.ringMask)
	if hlog.RecordAt(record).Word0() != key {
		return nil
	}
	return record
}

func readWord(s *Session, key, dst []byte) (done bool) {
	if p := s.straight(key, s.probe.head); p != nil {
		r := hlog.RecordAt(p)
		ok := cap(dst)-len(dst) >= 8 && r.Header().Plain()
		if ok {
			value := r.Word1()
			copy(dst[len(dst):len(dst)+8], word(&value))
			s.counts.ops[OpRead].inc()
		}
		s.leave()
		if ok {
			return true
		}
	}
	return readGeneral(s, key, dst)
}

func upsertWord(s *Session, key, value []byte) (done bool) {
	if p := s.straight(key, s.probe.readOnly); p != nil {
		ok := len(value) == 8 && s.layout.StoreWord(hlog.RecordAt(p), loadWord(value))
		if ok {
			s.counts.ops[OpUpsert].inc()
		}
		s.leave()
		if ok {
			return true
		}
	}
	return upsertGeneral(s, key, value)
}

func rmwWord(s *Session, key []byte, modify WordModifier) (done bool) {
	if p := s.straight(key, s.probe.readOnly); p != nil && modify != nil {
		r := hlog.RecordAt(p)
		old, ok := r.Word1(), r.Header().Updatable()
		s.leave()
		if ok {
			seen := s.probe.seen
			fresh, verdict := modify(old, true)
			ok = verdict == Put && s.slot.Resume(s.probe.epoch, seen) && r.SwapWord1(old, fresh)
			if ok {
				s.counts.ops[OpRMW].inc()
			}
			s.leave()
			if ok {
				return true
			}
		}
	}
	return rmwWordGeneral(s, key, modify)
}

func findRMW(s *Session, key unsafe.Pointer) (record unsafe.Pointer) {
	if p := s.straight(unsafe.Slice((*byte)(key), 8), s.probe.readOnly); p != nil {
		if r := hlog.RecordAt(p); r.Header().Updatable() {
			s.oldWord = r.Word1()
			*s.update = s.form
			record = p
		}
		s.leave()
	}
	return record
}
