package kv

import (
	"errors"
	"fmt"
	"iter"

	"github.com/redykv/redykv/hlog"
)

// Record is a record as an iteration finds it. Its bytes are valid until the
// iteration goes on.
type Record struct {
	Address   int64 // in the log
	Key       []byte
	Value     []byte // of a tombstone: what is left of it
	Expires   int64  // milliseconds of Unix time, 0: never
	Tombstone bool   // it deletes its key
}

// ScanLog iterates over all records of the log that begin at from or above and
// below to, oldest first, while operations go on: also those that newer ones have
// replaced, those that have expired, and tombstones. from may be 0, for the
// beginning; to 0 is the tail. What compaction takes away meanwhile is left out.
// An error ends the iteration.
//
//	for r, err := range st.ScanLog(0, 0) {
//		if err != nil {
//			return err
//		}
//		…
//	}
func (st *Store) ScanLog(from, to int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := st.withAny(func(s *Session) error {
			end, err := st.settleTo(to)
			if err != nil {
				return err
			}
			return s.walk(max(from, 0), end, func(address int64, im hlog.Image) bool {
				return yield(Record{
					Address: address, Key: im.Key, Value: im.Value,
					Expires: im.Expires, Tombstone: im.Header.Tombstone(),
				}, nil)
			})
		})
		if err != nil {
			yield(Record{}, err)
		}
	}
}

// settleTo is the log's SettleTo, which waits until all sessions have left their epochs:
// within a Modifier it is an error.
func (st *Store) settleTo(to int64) (end int64, err error) {
	if err := st.inModifier(); err != nil {
		return 0, fmt.Errorf("kv: iterating: %w", err)
	}
	return st.log.SettleTo(to), nil
}

// ownWalker is the session's walker, of which it has one.
func (s *Session) ownWalker() (*hlog.Walker, error) {
	if s.unusable != nil {
		return nil, s.unusable
	}
	if s.walker == nil {
		s.walker = s.log.NewWalker(&s.handle)
	}
	return s.walker, nil
}

// walk visits the records between two addresses until visit returns false.
func (s *Session) walk(from, to int64, visit func(address int64, im hlog.Image) bool) error {
	w, err := s.ownWalker()
	if err == nil {
		err = w.Walk(from, to)
	}
	for err == nil {
		var found bool
		if found, err = w.Next(); err == nil && (!found || !visit(w.Record())) {
			return nil
		}
	}
	return walkError(err)
}

func walkError(err error) error {
	switch {
	case err == nil || errors.Is(err, ErrClosed):
		return err
	case errors.Is(err, hlog.ErrCorrupt):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return fmt.Errorf("kv: %w", err)
}
