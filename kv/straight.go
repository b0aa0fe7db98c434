package kv

import "github.com/redykv/redykv/hlog"

// Plain calls of records of any layout go straight to a record in memory, as those of
// words do in plain_amd64.s: where it is the newest of its chain, nothing that the
// session was given before is under way, and nobody holds locks. What is not so has
// changed nothing, and goes the general way, which also finds out what is wrong with an
// operation: here a key is right if it is that of a record, and a value if it fits there.

// straightAhead is how many bytes of a record are asked for at most as soon as its
// address is known: from there on the processor sees by itself where it goes.
const straightAhead = 2 << 10

// reach enters the epoch and returns the record of key, if it is the newest of its
// chain, found in the first bucket and at or above floor, which is the probe's head or
// readOnly. It asks for ahead bytes of it. If there is none the session is outside.
func (s *Session) reach(key []byte, floor int64, ahead int) (r hlog.Record, ok bool) {
	p := &s.probe
	if p.any == 0 || s.keySize != 0 && s.keySize != len(key) {
		return r, false
	}
	hash := s.hash(key)
	if s.slot.Reenter(p.any) {
		if a := p.newest(hash, ahead); a >= floor {
			if r = s.view.At(a); s.layout.KeyEqual(r, key) {
				return r, true
			}
		}
	}
	s.leave()
	return r, false
}

// readStraight is Read, and says whether it is done.
func (s *Session) readStraight(key, dst []byte) ([]byte, bool) {
	r, ok := s.reach(key, s.probe.head, s.ahead)
	if !ok {
		return dst, false
	}
	value, h, _, whole := s.layout.TryRead(dst, r)
	if ok = whole && h.Plain(); ok {
		s.counts.ops[OpRead].inc()
		s.ahead = min(len(value)-len(dst)+len(key), straightAhead) // the next one is guessed to be alike
	}
	s.leave()
	return value, ok
}

// upsertStraight is Upsert in the place of the record that there is, and says whether it
// is done.
//
//nolint:unused // upsertAnyhow calls it, where upsertPlain ends
func (s *Session) upsertStraight(key, value []byte) bool {
	if s.counting || s.valueSize != 0 && s.valueSize != len(value) {
		return false
	}
	r, ok := s.reach(key, s.probe.readOnly, 0)
	if !ok {
		return false
	}
	if ok = s.storeInPlace(r, value, 0); ok {
		s.counts.ops[OpUpsert].inc()
	}
	s.leave()
	return ok
}

// editStraight is an RMW by its in-place form, and says whether it is done. The user's
// code may panic.
func (s *Session) editStraight(op *Op) bool {
	r, ok := s.reach(op.Key, s.probe.readOnly, s.ahead)
	if !ok {
		return false
	}
	defer s.leave()
	if !s.modifyInPlace(op, r) {
		return false
	}
	s.counts.ops[OpRMW].inc()
	return true
}
