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
	if readPlain(s, key, dst) {
		return dst[:len(dst)+8], nil
	}
	return s.plain.Value, s.plain.Err
}

// readAnyhow is Read in general.
//
//nolint:unused // readPlain ends there
func readAnyhow(s *Session, key, dst []byte) (done bool) {
	if s.refusePlain() {
		s.plain.Value = dst
		return false
	}
	if value, ok := s.readStraight(key, dst); ok {
		s.plain.Value, s.plain.Err = value, nil
		return false
	}
	s.plain = Op{Kind: OpRead, Key: key, Value: dst}
	s.plain.Err = s.run(&s.plain, len(dst))
	return false
}

// Upsert stores value under key, for good.
func (s *Session) Upsert(key, value []byte) error {
	if upsertPlain(s, key, value) {
		return nil
	}
	return s.plain.Err
}

// upsertAnyhow is Upsert in general.
//
//nolint:unused // upsertPlain ends there
func upsertAnyhow(s *Session, key, value []byte) (done bool) {
	if s.refusePlain() {
		return false
	}
	if s.upsertStraight(key, value) {
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
	if modifyWordPlain(s, key, modify) {
		return nil
	}
	return s.plain.Err
}

// modifyWordAnyhow is RMWWord in general.
//
//nolint:unused // modifyWordPlain ends there
func modifyWordAnyhow(s *Session, key []byte, modify WordModifier) (done bool) {
	if s.refusePlain() {
		return false
	}
	s.plain = Op{Kind: OpRMW, Key: key, ModifyWord: modify}
	s.plain.Err = s.run(&s.plain, 0)
	return false
}

// RMW changes the record of key as modify says, atomically.
func (s *Session) RMW(key []byte, modify Modifier) error {
	if len(key) != 8 || modify == nil {
		return rmwAnyhow(s, key, modify)
	}
	// The session is outside while the Modifier runs, so that it may panic; but
	// nothing of what was seen has changed if the same epoch can be entered again. If it
	// has used the session for another read-modify-write, that used the same Update.
	p := modifyPlain(s, unsafe.Pointer(unsafe.SliceData(key)))
	if p == nil {
		return rmwAnyhow(s, key[:8:8], modify)
	}
	u, seen, before := s.update, s.probe.seen, s.counts.ops[OpRMW]
	if modify(u) != Put || u.Expires != 0 || len(u.New) != 8 || s.counts.ops[OpRMW] != before {
		return rmwAnyhow(s, key[:8:8], modify)
	}
	if !s.slot.Resume(s.probe.epoch, seen) || !hlog.RecordAt(p).SwapWord1(s.oldWord, loadWord(u.New)) {
		s.leave()
		return rmwAnyhow(s, key[:8:8], modify)
	}
	s.counts.ops[OpRMW].inc()
	s.leave()
	return nil
}

// rmwAnyhow is RMW in general.
//
//go:noinline
func rmwAnyhow(s *Session, key []byte, modify Modifier) error {
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

// refusePlain says whether a plain call is refused as it comes from within a Modifier,
// whose operation may be s.plain. compute expects no more of it to change.
//
//nolint:unused // readAnyhow, upsertAnyhow and modifyWordAnyhow call it
func (s *Session) refusePlain() bool {
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
	if op.Kind == OpRMW && op.InPlace != nil && op.Modify != nil && s.editStraight(op) {
		op.Err = nil
		return nil
	}
	if op.Err = s.unusable; op.Err != nil {
		return op.Err
	}
	s.flush()
	if !s.begin(op, s.hash(op.Key), keep, false) {
		if err := s.landAll(); err != nil {
			return err
		}
	}
	s.goStraight(s.streamed|s.batch == 0)
	return op.Err
}

// goStraight says, as of the epoch that the session has seen, whether plain calls
// may go straight to records in memory: nothing that the session was given before is
// under way.
func (s *Session) goStraight(may bool) {
	p := &s.probe
	switch p.wide, p.narrow, p.any = 0, 0, 0; {
	case !may:
	case !s.wordCalls:
		p.any = p.seen // straight.go
	case vectors2:
		p.wide = p.seen
	default:
		p.narrow = p.seen
	}
}

// landAll returns when no plain call's or batch's operation is under way.
func (s *Session) landAll() error {
	for s.batch > 0 {
		if err := s.await(context.Background()); err != nil {
			return err
		}
	}
	return nil
}
