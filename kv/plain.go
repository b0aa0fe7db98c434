package kv

import (
	"context"
	"unsafe"
)

// The plain calls: one operation each, carried out whole.

// Read appends the value of key to dst and returns the result, or dst and
// ErrNotFound.
func (s *Session) Read(key, dst []byte) ([]byte, error) {
	if s.direct && len(key) == 8 && cap(dst)-len(dst) >= 8 {
		end := unsafe.Add(unsafe.Pointer(unsafe.SliceData(dst)), len(dst))
		if s.readDirect(unsafe.Pointer(unsafe.SliceData(key)), end) {
			return dst[:len(dst)+8], nil
		}
	}
	return s.readAnyhow(key, dst)
}

// readAnyhow is Read in general.
func (s *Session) readAnyhow(key, dst []byte) ([]byte, error) {
	s.plain = Op{Kind: OpRead, Key: key, Value: dst}
	err := s.run(&s.plain, len(dst))
	return s.plain.Value, err
}

// Upsert stores value under key, for good.
func (s *Session) Upsert(key, value []byte) error {
	if s.direct && len(key) == 8 && len(value) == 8 &&
		s.storeDirect(unsafe.Pointer(unsafe.SliceData(key)), unsafe.Pointer(unsafe.SliceData(value))) {
		return nil
	}
	return s.upsertAnyhow(key, value)
}

func (s *Session) upsertAnyhow(key, value []byte) error {
	s.plain = Op{Kind: OpUpsert, Key: key, Value: value}
	return s.run(&s.plain, 0)
}

// RMW changes the record of key as modify says, atomically.
func (s *Session) RMW(key []byte, modify Modifier) error {
	if s.direct && len(key) == 8 && modify != nil {
		if s.rmwWord(loadWord(key), modify) {
			return nil
		}
	}
	s.plain = Op{Kind: OpRMW, Key: key, Modify: modify}
	return s.run(&s.plain, 0)
}

// Insert stores value under key if the key is not there; else it returns
// ErrExists.
func (s *Session) Insert(key, value []byte) error {
	s.plain = Op{Kind: OpInsert, Key: key, Value: value}
	return s.run(&s.plain, 0)
}

// Delete removes key. A key that is not there is no error.
func (s *Session) Delete(key []byte) error {
	s.plain = Op{Kind: OpDelete, Key: key}
	return s.run(&s.plain, 0)
}

// Run carries one operation out and returns its Err: the plain call for what the
// others have no room for.
func (s *Session) Run(op *Op) error { return s.run(op, 0) }

// run carries one operation out, whole. keep is how much of a read's Value stays
// in front.
func (s *Session) run(op *Op, keep int) error {
	if op.Err = s.unusable; op.Err != nil {
		return op.Err
	}
	s.flush()
	if !s.begin(op, s.hash(op.Key), keep, false) {
		if err := s.landAll(); err != nil {
			return err
		}
	}
	s.direct = s.words && s.streamed|s.batch == 0
	return op.Err
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
