package kv

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/redykv/redykv/hlog"
)

// Plain calls: one operation each, complete when the call returns.
//
// A plain call goes directly to its record if the record is in memory and the newest of its
// chain, the session has no other operation pending, and no keys are locked. Otherwise it
// changes nothing and goes the general way (attempt.go), which also checks the operation: the
// direct way only compares the key with the record's, and the value's length with the room.
//
// readWord, upsertWord, rmwWord and findRMW do the same in assembly for keys and values of 8
// bytes (plain_amd64.s). If they cannot complete the call, they end in the Go functions below.

// Read appends the value of key to dst and returns the result, or dst and ErrNotFound.
func (s *Session) Read(key, dst []byte) ([]byte, error) {
	if readWord(s, key, dst) {
		return dst[:len(dst)+8], nil
	}
	return s.plain.Value, s.plain.Err
}

// readGeneral reads key into s.plain. It returns false, as readWord must in this case.
func readGeneral(s *Session, key, dst []byte) bool {
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

// Upsert stores value under key, without an expiry.
func (s *Session) Upsert(key, value []byte) error {
	if upsertWord(s, key, value) {
		return nil
	}
	return s.plain.Err
}

// UpsertTTL stores value under key until ttl, which must be positive, has passed. See also
// [Op.Expires].
func (s *Session) UpsertTTL(key, value []byte, ttl time.Duration) error {
	if ttl <= 0 {
		return fmt.Errorf("%w: a time to live of %v", ErrBadExpiry, ttl)
	}
	expires := s.store.now() + ttl.Milliseconds()
	if ttl%time.Millisecond > 0 {
		expires++
	}
	return s.runPlain(Op{Kind: OpUpsert, Key: key, Value: value, Expires: expires})
}

// upsertGeneral is Upsert. It returns false if s.plain has the result.
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

// RMWWord is RMW of an 8-byte value as a little-endian number. It is the fastest form for
// counters and the like. If the record of key has a value of another length, it returns
// ErrBadSize and changes nothing.
func (s *Session) RMWWord(key []byte, modify WordModifier) error {
	if rmwWord(s, key, modify) {
		return nil
	}
	return s.plain.Err
}

// rmwWordGeneral is RMWWord. It returns false if s.plain has the result.
func rmwWordGeneral(s *Session, key []byte, modify WordModifier) (done bool) {
	if s.refusedInModifier() {
		return false
	}
	if s.rmwWordDirect(key, modify) {
		return true
	}
	s.plain = Op{Kind: OpRMW, Key: key, ModifyWord: modify}
	s.plain.Err = s.run(&s.plain, 0)
	return false
}

// RMW changes the record of key by modify, atomically.
func (s *Session) RMW(key []byte, modify Modifier) error {
	if len(key) != 8 || modify == nil {
		return rmwGeneral(s, key, modify)
	}
	r := findRMW(s, unsafe.Pointer(unsafe.SliceData(key)))
	if r == (hlog.Record{}) {
		return rmwGeneral(s, key[:8:8], modify)
	}
	// The session is outside its epoch while the Modifier runs, since that may panic. The
	// record found is still valid if the same epoch can be entered again. A read-modify-write
	// of this session within the Modifier has used the same Update.
	u, epoch, before := s.update, s.view.epoch, s.counts.ops[OpRMW]
	if modify(u) != Put || u.Expires != 0 || len(u.New) != 8 || s.counts.ops[OpRMW] != before {
		return rmwGeneral(s, key[:8:8], modify)
	}
	if !s.handle.Resume(s.view.current, epoch) || !r.SwapWord1(s.oldWord, loadWord(u.New)) {
		s.leave()
		return rmwGeneral(s, key[:8:8], modify)
	}
	s.counts.ops[OpRMW].inc()
	s.leave()
	return nil
}

// rmwGeneral is RMW the general way.
//
//go:noinline
func rmwGeneral(s *Session, key []byte, modify Modifier) error {
	return s.runPlain(Op{Kind: OpRMW, Key: key, Modify: modify})
}

// Insert stores value under key if the key does not exist. Otherwise it returns ErrExists.
func (s *Session) Insert(key, value []byte) error {
	return s.runPlain(Op{Kind: OpInsert, Key: key, Value: value})
}

// Delete removes key. It is not an error if the key does not exist.
func (s *Session) Delete(key []byte) error {
	return s.runPlain(Op{Kind: OpDelete, Key: key})
}

// runPlain runs op in s.plain.
func (s *Session) runPlain(op Op) error {
	if s.inUserCode { // s.plain is in use
		return ErrInModifier
	}
	s.plain = op
	return s.run(&s.plain, 0)
}

// refusedInModifier refuses a plain call from within a Modifier, whose operation may be
// s.plain. It changes only s.plain.Err, which compute restores.
func (s *Session) refusedInModifier() bool {
	if !s.inUserCode {
		return false
	}
	s.plain.Err = ErrInModifier
	return true
}

// Run executes one operation and returns its Err. It is the plain call for operations with
// parameters that the other plain calls lack.
func (s *Session) Run(op *Op) error {
	if op == nil {
		return errNoOp
	}
	return s.run(op, 0)
}

// run executes one operation and returns its Err. The value that a read finds is appended to
// op.Value[:keep].
func (s *Session) run(op *Op, keep int) error {
	if s.inUserCode {
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
	hash := s.hash(op.Key)
	if hash < s.view.sampled {
		s.samplePlain(op, hash)
	}
	if !s.begin(op, hash, keep, false) {
		if err := s.awaitBatch(); err != nil {
			return err
		}
	}
	s.allowDirect(s.streamed|s.batch == 0)
	s.dropScratch()
	return op.Err
}

// awaitBatch waits until no operation of a plain call or a batch is pending.
func (s *Session) awaitBatch() error {
	for s.batch > 0 {
		if err := s.await(s.ctx); err != nil {
			if s.unusable != nil {
				return err
			}
			s.abandonBatch(err)
		}
	}
	return nil
}

// allowDirect sets whether plain calls may go directly to records, until the session's view
// changes.
func (s *Session) allowDirect(may bool) {
	v := &s.view
	switch v.wide, v.narrow, v.direct = 0, 0, 0; {
	case !may || v.guarded:
	case !s.inAssembly:
		v.direct = v.epoch
	case vectors2:
		v.wide = v.epoch
	default:
		v.narrow = v.epoch
	}
}

// directAhead is the maximum number of bytes of a record that findDirect prefetches: beyond
// them the processor prefetches the sequence by itself.
const directAhead = 2 << 10

// findDirect enters the epoch and returns the record of key if a plain call may go directly to
// it: the newest record of its chain, found in the first bucket, at or above lowest, which is
// the view's head or readOnly. It prefetches ahead bytes of the record. If ok is false, the
// session is outside its epoch.
func (s *Session) findDirect(key []byte, lowest int64, ahead int) (r hlog.Record, ok bool) {
	v := &s.view
	if v.direct == 0 || s.keySize != 0 && s.keySize != len(key) {
		return r, false
	}
	hash := s.hash(key)
	if hash >= v.sampled && s.handle.Reenter(v.direct) {
		if a := v.newest(hash, ahead); a >= lowest {
			if r = v.record(a); s.layout.KeyEqual(r, key) {
				return r, true
			}
		}
	}
	s.leave()
	return r, false
}

// readDirect is Read; ok reports whether it is complete.
func (s *Session) readDirect(key, dst []byte) (value []byte, ok bool) {
	r, ok := s.findDirect(key, s.view.head, s.ahead)
	if !ok {
		return dst, false
	}
	value, h, _, whole := s.layout.TryRead(dst, r)
	if ok = whole && h.Plain(); ok {
		s.counts.ops[OpRead].inc()
		s.ahead = min(len(value)-len(dst)+len(key), directAhead) // a guess for the next record
	}
	s.leave()
	return value, ok
}

// upsertDirect is Upsert in place; it reports whether it is complete.
func (s *Session) upsertDirect(key, value []byte) bool {
	if s.counting || s.valueSize != 0 && s.valueSize != len(value) {
		return false
	}
	r, ok := s.findDirect(key, s.view.readOnly, 0)
	if !ok {
		return false
	}
	if ok = s.storeInPlace(r, key, value, 0); ok {
		s.counts.ops[OpUpsert].inc()
	}
	s.leave()
	return ok
}

// updateDirect is an RMW by Op.InPlace; it reports whether it is complete. The user's code may
// panic.
func (s *Session) updateDirect(op *Op) bool {
	r, ok := s.findDirect(op.Key, s.view.readOnly, s.ahead)
	if !ok {
		return false
	}
	defer s.leave()
	if !s.updateInPlace(op, r) {
		return false
	}
	s.counts.ops[OpRMW].inc()
	return true
}

// rmwWordDirect is RMWWord in place; it reports whether it is complete. The session is outside
// its epoch while modify runs, as in RMW.
func (s *Session) rmwWordDirect(key []byte, modify WordModifier) bool {
	if modify == nil {
		return false
	}
	r, old, ok := s.findWordDirect(key)
	if !ok {
		return false
	}
	epoch := s.view.epoch
	fresh, verdict := modify(old, true)
	if verdict != Put {
		return false
	}
	if ok = s.handle.Resume(s.view.current, epoch) && r.SwapWord1(old, fresh); ok {
		s.counts.ops[OpRMW].inc()
	}
	s.leave()
	return ok
}

// findWordDirect returns a record whose lock-free value may be updated in place, and that
// value. The session is outside its epoch afterwards.
func (s *Session) findWordDirect(key []byte) (r hlog.Record, value uint64, ok bool) {
	if !s.words {
		return r, 0, false
	}
	if r, ok = s.findDirect(key, s.view.readOnly, 0); ok {
		value, ok = r.Word1(), r.Header().Updatable()
		s.leave()
	}
	return r, value, ok
}
