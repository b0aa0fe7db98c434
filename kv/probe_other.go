//go:build !amd64 || race

package kv

import (
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

const vectors = true // what there is instead is always there

func match(bucket unsafe.Pointer, want uint64) int { return matchWords(bucket, want) }

// lookup returns the record whose key is the word, if it is the newest of
// its chain, found in the first bucket, and at or above floor, which is not
// below head.
func (p *probe) lookup(key uint64, floor int64) unsafe.Pointer {
	s := p.slotOf(hashWord(key))
	if s.p == nil {
		return nil
	}
	a := s.load().address()
	if a < floor {
		return nil
	}
	at := unsafe.Add(p.frames, a&p.ringMask)
	if hlog.RecordAt(at).Word0() != key {
		return nil
	}
	return at
}

func (p *probe) scan(l *lane) { p.scanWords(l.hashes[:l.n], l.slots[:l.n]) }

func (s *Session) readDirect(key, dst unsafe.Pointer) bool {
	s.enter()
	defer s.leave()
	p := s.probe.lookup(*(*uint64)(key), s.probe.head)
	if p == nil || !hlog.RecordAt(p).Header().Plain() {
		return false
	}
	*(*uint64)(dst) = hlog.RecordAt(p).Word1()
	s.counts.ops[OpRead].inc()
	return true
}

func (s *Session) storeDirect(key, value unsafe.Pointer) bool {
	s.enter()
	defer s.leave()
	p := s.probe.lookup(*(*uint64)(key), s.probe.readOnly)
	if p == nil || !s.layout.StoreWord(hlog.RecordAt(p), *(*uint64)(value)) {
		return false
	}
	s.counts.ops[OpUpsert].inc()
	return true
}
