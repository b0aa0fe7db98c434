package kv

import (
	"context"
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

// The plain calls: one operation each, carried out whole.

// Each is a few instructions in its caller and a function that says whether it is
// done, as nearly all are; if not, s.plain holds the outcome.

// Read appends the value of key to dst and returns the result, or dst and
// ErrNotFound.
func (s *Session) Read(key, dst []byte) ([]byte, error) {
	if readWord(s, key, dst) {
		return dst[:len(dst)+8], nil
	}
	return s.plain.Value, s.plain.Err
}

// readGeneral is Read in general.
//
//nolint:unused // readWord ends there
func readGeneral(s *Session, key, dst []byte) (done bool) {
	if s.refusedInModifier() {
		s.plain.Value = dst
		return false
	}
	if value, ok := s.readDirect(key, dst); ok {
		s.plain.Value, s.plain.Err = value, nil
		return false
	}
	s.plain = Op{Kind: OpRead, Key: key, Value: dst}
	s.plain.Err = s.run(&s.plain, len(dst))
	return false
}

// Upsert stores value under key, for good.
func (s *Session) Upsert(key, value []byte) error {
	if upsertWord(s, key, value) {
		return nil
	}
	return s.plain.Err
}

// upsertGeneral is Upsert in general.
//
//nolint:unused // upsertWord ends there
func upsertGeneral(s *Session, key, value []byte) (done bool) {
	if s.refusedInModifier() {
		return false
	}
	if s.upsertDirect(key, value) {
		return true
	}
	s.plain = Op{Kind: OpUpsert, Key: key, Value: value}
	s.plain.Err = s.run(&s.plain, 0)
	return false
}

// RMWWord is RMW of a value of 8 bytes, as a number whose lowest byte comes first:
// for counters and the like the fastest form. Where the record of key has a value of
// another length it is ErrBadSize, and nothing changes.
func (s *Session) RMWWord(key []byte, modify WordModifier) error {
	if rmwWord(s, key, modify) {
		return nil
	}
	return s.plain.Err
}

// rmwWordGeneral is RMWWord in general.
//
//nolint:unused // rmwWord ends there
func rmwWordGeneral(s *Session, key []byte, modify WordModifier) (done bool) {
	if s.refusedInModifier() {
		return false
	}
	s.plain = Op{Kind: OpRMW, Key: key, ModifyWord: modify}
	s.plain.Err = s.run(&s.plain, 0)
	return false
}

// RMW changes the record of key as modify says, atomically.
func (s *Session) RMW(key []byte, modify Modifier) error {
	if len(key) != 8 || modify == nil {
		return rmwGeneral(s, key, modify)
	}
	// The session is outside while the Modifier runs, so that it may panic; but
	// nothing of what was seen has changed if the same epoch can be entered again. If it
	// has used the session for another read-modify-write, that used the same Update.
	p := findRMW(s, unsafe.Pointer(unsafe.SliceData(key)))
	if p == nil {
		return rmwGeneral(s, key[:8:8], modify)
	}
	u, seen, before := s.update, s.probe.seen, s.counts.ops[OpRMW]
	if modify(u) != Put || u.Expires != 0 || len(u.New) != 8 || s.counts.ops[OpRMW] != before {
		return rmwGeneral(s, key[:8:8], modify)
	}
	if !s.slot.Resume(s.probe.epoch, seen) || !hlog.RecordAt(p).SwapWord1(s.oldWord, loadWord(u.New)) {
		s.leave()
		return rmwGeneral(s, key[:8:8], modify)
	}
	s.counts.ops[OpRMW].inc()
	s.leave()
	return nil
}

// rmwGeneral is RMW in general.
//
//go:noinline
func rmwGeneral(s *Session, key []byte, modify Modifier) error {
	return s.runPlain(Op{Kind: OpRMW, Key: key, Modify: modify})
}

// Insert stores value under key if the key is not there; else it returns
// ErrExists.
func (s *Session) Insert(key, value []byte) error {
	return s.runPlain(Op{Kind: OpInsert, Key: key, Value: value})
}

// Delete removes key. A key that is not there is no error.
func (s *Session) Delete(key []byte) error {
	return s.runPlain(Op{Kind: OpDelete, Key: key})
}

// runPlain is run for an operation of the session's own.
func (s *Session) runPlain(op Op) error {
	if s.asker != 0 { // s.plain is in use
		return ErrInModifier
	}
	s.plain = op
	return s.run(&s.plain, 0)
}

// refusedInModifier says whether a plain call is refused as it comes from within a Modifier,
// whose operation may be s.plain. compute expects no more of it to change.
//
//nolint:unused // readGeneral, upsertGeneral and rmwWordGeneral call it
func (s *Session) refusedInModifier() bool {
	if s.asker == 0 {
		return false
	}
	s.plain.Err = ErrInModifier
	return true
}

// Run carries one operation out and returns its Err: the plain call for what the
// others have no room for.
func (s *Session) Run(op *Op) error {
	if op == nil {
		return errNoOp
	}
	return s.run(op, 0)
}

// run carries one operation out, whole. keep is how much of a read's Value stays
// in front.
func (s *Session) run(op *Op, keep int) error {
	if s.asker != 0 {
		op.Err = ErrInModifier
		return op.Err
	}
	if op.Kind == OpRMW && op.InPlace != nil && op.Modify != nil && s.updateDirect(op) {
		op.Err = nil
		return nil
	}
	if op.Err = s.unusable; op.Err != nil {
		return op.Err
	}
	s.flush()
	if !s.begin(op, s.hash(op.Key), keep, false) {
		if err := s.awaitBatch(); err != nil {
			return err
		}
	}
	s.allowDirect(s.streamed|s.batch == 0)
	return op.Err
}

// allowDirect says, as of the epoch that the session has seen, whether plain calls
// may go straight to records in memory: nothing that the session was given before is
// under way.
func (s *Session) allowDirect(may bool) {
	p := &s.probe
	switch p.wide, p.narrow, p.any = 0, 0, 0; {
	case !may:
	case !s.wordCalls:
		p.any = p.seen // plain.go
	case vectors2:
		p.wide = p.seen
	default:
		p.narrow = p.seen
	}
}

// awaitBatch returns when no plain call's or batch's operation is under way.
func (s *Session) awaitBatch() error {
	for s.batch > 0 {
		if err := s.await(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// Plain calls of records of any layout go straight to a record in memory, as those of
// words do in plain_amd64.s: where it is the newest of its chain, nothing that the
// session was given before is under way, and nobody holds locks. What is not so has
// changed nothing, and goes the general way, which also finds out what is wrong with an
// operation: here a key is right if it is that of a record, and a value if it fits there.

// directAhead is how many bytes of a record are asked for at most as soon as its
// address is known: from there on the processor sees by itself where it goes.
const directAhead = 2 << 10

// findDirect enters the epoch and returns the record of key, if it is the newest of its
// chain, found in the first bucket and at or above floor, which is the probe's head or
// readOnly. It asks for ahead bytes of it. If there is none the session is outside.
func (s *Session) findDirect(key []byte, floor int64, ahead int) (r hlog.Record, ok bool) {
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

// readDirect is Read, and says whether it is done.
func (s *Session) readDirect(key, dst []byte) ([]byte, bool) {
	r, ok := s.findDirect(key, s.probe.head, s.ahead)
	if !ok {
		return dst, false
	}
	value, h, _, whole := s.layout.TryRead(dst, r)
	if ok = whole && h.Plain(); ok {
		s.counts.ops[OpRead].inc()
		s.ahead = min(len(value)-len(dst)+len(key), directAhead) // the next one is guessed to be alike
	}
	s.leave()
	return value, ok
}

// upsertDirect is Upsert in the place of the record that there is, and says whether it
// is done.
//
//nolint:unused // upsertGeneral calls it, where upsertWord ends
func (s *Session) upsertDirect(key, value []byte) bool {
	if s.counting || s.valueSize != 0 && s.valueSize != len(value) {
		return false
	}
	r, ok := s.findDirect(key, s.probe.readOnly, 0)
	if !ok {
		return false
	}
	if ok = s.storeInPlace(r, value, 0); ok {
		s.counts.ops[OpUpsert].inc()
	}
	s.leave()
	return ok
}

// updateDirect is an RMW by its in-place form, and says whether it is done. The user's
// code may panic.
func (s *Session) updateDirect(op *Op) bool {
	r, ok := s.findDirect(op.Key, s.probe.readOnly, s.ahead)
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
