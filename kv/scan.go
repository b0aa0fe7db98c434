package kv

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
)

// Scan iterates over the records that readers see, while operations go on. A key
// that is there from its beginning to its end is found, with a value that it had
// meanwhile: once, or a second time where compaction took a part of the log away
// that the scan had still to go through. A key that was not there all the time is
// found or not; one that was deleted before it began, never. An error ends it.
func (st *Store) Scan() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := st.withAny(func(s *Session) error {
			sc, err := s.newScanner()
			if err != nil {
				return err
			}
			goOn := true
			visit := func(r Record) bool {
				goOn = yield(r, nil)
				return goOn
			}
			for goOn && sc.next < sc.end {
				if err := sc.step(visit); err != nil {
					return err
				}
			}
			if !goOn || !sc.lost {
				return nil
			}
			// The newest records of what was lost are at the end or behind it now.
			w := newSweep(s, 0, sc.end)
			for goOn && w.at < index.Positions {
				if _, err := w.step(math.MaxInt, math.MaxInt, visit); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			yield(Record{}, err)
		}
	}
}

// scanner finds the records that readers see, a batch at a time. It walks the log
// up to the tail as it was when the scan began, its end, and asks the index of each
// record whether it is the newest of its key below. So a key is found there,
// whatever writers append meanwhile, and the scan ends.
//
// Compaction moves records to the tail and the log's begin behind them. When that
// overtakes the scan, a record that was still to come is behind the end, or a newer
// one of its key.
type scanner struct {
	s     *Session
	w     *hlog.Walker
	next  int64 // where the walk goes on
	end   int64 // the tail when the scan began
	safe  int64 // what lies below was read-only then
	lost  bool  // compaction has overtaken the scan
	batch traceBatch

	// Of keys that have several records below the end: the newest one's address. It
	// spares their other records a trace, which passes all that were written since.
	newest []newestOf
	seed   maphash.Seed
}

type newestOf struct {
	key     string
	address int64
}

// scanBatch is how many records a scan looks at together: so many reads of chains
// that lie on the device are under way at once.
const scanBatch = 256

// newestKept is how many keys a scanner knows the newest records of.
const newestKept = 1 << 12

func (s *Session) newScanner() (*scanner, error) {
	w, err := s.ownWalker()
	if err != nil {
		return nil, err
	}
	safe, begin := s.log.SafeReadOnly(), s.log.Begin()
	end, err := s.store.settleTo(0)
	if err != nil {
		return nil, err
	}
	sc := &scanner{
		s: s, w: w, safe: safe, next: begin, end: end,
		newest: make([]newestOf, newestKept), seed: maphash.MakeSeed(),
	}
	return sc, walkError(w.Walk(sc.next, sc.end))
}

// newestAt is what the scanner knows of a key: the place to note it.
func (sc *scanner) newestAt(key []byte) *newestOf {
	return &sc.newest[maphash.Bytes(sc.seed, key)%newestKept]
}

// step looks at a batch of records, until visit returns false.
func (sc *scanner) step(visit func(Record) bool) error {
	b := &sc.batch
	b.reset()
	for n, ended := 0, false; !ended && n < scanBatch && len(b.bytes) < traceBatchBytes; n++ {
		found, err := sc.w.Next()
		if err != nil {
			return walkError(err)
		}
		ended = !found
		address, im := sc.w.Record()
		if !found || im.Header.Tombstone() {
			continue
		}
		if known := sc.newestAt(im.Key); known.address > address && known.key == string(im.Key) {
			continue
		}
		t := newTrace(address, sc.end)
		t.early = address >= sc.safe
		b.add(opNewest, t, im)
	}
	if err := b.run(sc.s); err != nil {
		return err
	}
	// Of what was looked at below the log's begin, some may have been moved before
	// the index was asked.
	sc.lost = sc.lost || sc.s.log.Begin() > sc.next
	sc.next = sc.w.Position()
	for i := range b.ops {
		op, t := &b.ops[i], &b.traces[i]
		switch {
		case op.Err == nil && !visit(Record{Address: t.source, Key: op.Key, Value: op.Value, Expires: op.Expires}):
			return nil
		case t.newest != 0:
			*sc.newestAt(op.Key) = newestOf{string(op.Key), t.newest}
		}
	}
	return nil
}

// traceBatch is records whose chains are followed together. Tombstones are not
// among them. It owns copies of their bytes.
type traceBatch struct {
	ops    []Op
	traces []trace
	bytes  []byte
}

// traceBatchBytes ends a batch of large records.
const traceBatchBytes = 1 << 20

func (b *traceBatch) reset() { b.ops, b.traces, b.bytes = b.ops[:0], b.traces[:0], b.bytes[:0] }

// add takes a record in. Slices of earlier ones stay good when bytes grows: they
// keep the old memory.
func (b *traceBatch) add(kind OpKind, t trace, im hlog.Image) {
	at := len(b.bytes)
	b.bytes = append(append(b.bytes, im.Key...), im.Value...)
	value, end := at+len(im.Key), len(b.bytes)
	b.traces = append(b.traces, t)
	b.ops = append(b.ops, Op{
		Kind: kind, Expires: im.Expires,
		Key: b.bytes[at:value:value], Value: b.bytes[value:end:end],
	})
}

// run carries the batch out. Each Op has its own ErrNotFound; any other error is
// returned.
func (b *traceBatch) run(s *Session) error {
	s.traces = b.traces
	for i := range b.ops {
		b.ops[i].trace = uint32(i + 1)
	}
	return s.Do(context.Background(), b.ops)
}

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
