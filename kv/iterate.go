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

// Records iterates over all records of the log that begin at from or above and
// below to, oldest first, while operations go on: also those that newer ones have
// replaced, those that have expired, and tombstones. from may be 0, for the
// beginning; to 0 is the tail. What compaction takes away meanwhile is left out.
// An error ends the iteration.
//
//	for r, err := range st.Records(0, 0) {
//		if err != nil {
//			return err
//		}
//		…
//	}
func (st *Store) Records(from, to int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := st.withAny(func(s *Session) error {
			end := st.log.SettleTo(to)
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

// Scan iterates over the records that readers see, while operations go on. A key
// that is there from its beginning to its end is found at least once, nearly
// always exactly once, with a value that it had meanwhile; a key that was not
// there all the time, or only while compaction moved it, once, more often, or not
// at all; one that was deleted before it began, never. An error ends it.
func (st *Store) Scan() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := st.withAny(func(s *Session) error {
			sc, err := s.scanFrom(0)
			for goOn := true; err == nil && goOn && !sc.done; {
				goOn, err = sc.step(scanBatch, func(r Record) bool { return yield(r, nil) })
			}
			return err
		})
		if err != nil {
			yield(Record{}, err)
		}
	}
}

// ScanFrom is Scan in steps: it looks at about count records, more than 0, calls
// visit for those of them that readers see, and returns where to go on: 0 at the
// end. Nothing is kept between steps: a scan may be left, taken up again after the
// store was closed and opened, or by two callers. If visit returns false, the step
// ends; its last batch of records is then found again.
//
// A crash that loses what was not committed may make a scan that was under way
// miss keys which were written shortly before it.
func (st *Store) ScanFrom(at Cursor, count int, visit func(Record) bool) (next Cursor, err error) {
	if count < 1 {
		return at, fmt.Errorf("kv: scan of %d records", count)
	}
	err = st.withAny(func(s *Session) error {
		sc, err := s.scanFrom(at)
		if err != nil {
			return err
		}
		for goOn := true; goOn && !sc.done && count > 0; count -= scanBatch {
			if goOn, err = sc.step(min(count, scanBatch), visit); err != nil {
				return err
			}
		}
		next = sc.cursor()
		return nil
	})
	return next, err
}

// ownWalker is the session's walker, of which it has one.
func (s *Session) ownWalker() (*hlog.Walker, error) {
	if s.unusable != nil {
		return nil, s.unusable
	}
	if s.walker == nil {
		s.walker = s.log.NewWalker(&s.slot)
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
