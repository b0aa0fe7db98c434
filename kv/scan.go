package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math"
	"time"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
)

// Scan iterates over the live records while operations go on. A key that exists during the
// whole scan is found, with a value that it had meanwhile. It is found once, or twice if
// compaction truncates a part of the log that the scan has not reached. A key that exists only
// for a part of the scan may be found. A key that was deleted before the scan began is not
// found. Inner records (Options.Inner) are not found. An error ends the iteration.
func (st *Store) Scan() iter.Seq2[Record, error] { return st.ScanContext(context.Background()) }

// ScanContext is Scan until ctx ends, whose cause is then the error.
func (st *Store) ScanContext(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := st.withAny(func(s *Session) error {
			sc, err := s.newScanner(ctx)
			if err != nil {
				return cmp.Or(ended(ctx, true), err)
			}
			goOn := true
			visit := func(r Record) bool {
				goOn = yield(r, nil)
				return goOn
			}
			for goOn && sc.next < sc.end && ctx.Err() == nil {
				if err := sc.step(ctx, visit); err != nil {
					return cmp.Or(ended(ctx, goOn), err)
				}
			}
			if err := sc.w.Pause(ctx); err != nil {
				return cmp.Or(ended(ctx, goOn), walkError(err))
			}
			if !goOn || !sc.lost || ctx.Err() != nil {
				return ended(ctx, goOn)
			}
			// The newest records of the part that was lost are now at the end of the scan or
			// above it.
			w := newSweep(s, 0, sc.end)
			before := s.ctx
			s.ctx = ctx
			defer func() { s.ctx = before }()
			for goOn && w.at < index.Positions && ctx.Err() == nil {
				if _, err := w.step(math.MaxInt, math.MaxInt, visit); err != nil {
					return cmp.Or(ended(ctx, goOn), err)
				}
			}
			return ended(ctx, goOn)
		})
		if err != nil {
			yield(Record{}, err)
		}
	}
}

// ended returns the error of a scan that goes on although its context has ended.
func ended(ctx context.Context, goesOn bool) error {
	if goesOn && ctx.Err() != nil {
		return fmt.Errorf("kv: scanning: %w", context.Cause(ctx))
	}
	return nil
}

// scanner finds live records, a batch at a time. It walks the log up to end, the tail when the
// scan began, and asks the index whether a record is the newest of its key below end. If
// compaction moves the log's begin past the scan's position, the records in between, or newer
// ones of their keys, are above end.
type scanner struct {
	s     *Session
	w     *hlog.Walker
	next  int64 // address of the next record to look at
	end   int64 // the tail when the scan began
	safe  int64 // records below it were read-only when the scan began
	lost  bool  // compaction has truncated records that the scan had not reached
	batch traceBatch
	caller

	// The address of the newest record of keys that have several below end. It saves a trace of
	// their other records, which would pass all later ones.
	newest []newestOf
	seed   maphash.Seed
}

type newestOf struct {
	key     string
	address int64
}

// caller tells whether the caller of an iteration takes long for its records. If so, nothing is
// read ahead while it has one. Otherwise the next records are read meanwhile, which makes a scan of
// an SSD a quarter faster.
type caller struct {
	since time.Time
	steps int
	slow  bool
}

// callerSteps are the steps between two looks at the clock.
const callerSteps = 64

// callerTime is the time of callerSteps steps from which a caller is slow.
var callerTime = time.Second

// isSlow is called at each step.
func (c *caller) isSlow() bool {
	if c.steps%callerSteps == 0 {
		now := time.Now()
		c.slow = now.Sub(c.since) >= callerTime // at the first step it is not known
		c.since = now
	}
	c.steps++
	return c.slow
}

// scanBatch is the number of records that a scan traces together, and so the number of device
// reads that may be pending.
const scanBatch = 256

// newestKept is the number of keys whose newest record a scanner remembers.
const newestKept = 1 << 12

func (s *Session) newScanner(ctx context.Context) (*scanner, error) {
	w, err := s.ownWalker()
	if err != nil {
		return nil, err
	}
	safe, begin := s.log.SafeReadOnly(), s.log.Begin()
	end := s.log.SettleTo(0)
	sc := &scanner{
		s: s, w: w, safe: safe, next: begin, end: end,
		newest: make([]newestOf, newestKept), seed: maphash.MakeSeed(),
	}
	return sc, walkError(w.Walk(ctx, sc.next, sc.end))
}

// newestAt returns the entry of a key.
func (sc *scanner) newestAt(key []byte) *newestOf {
	return &sc.newest[maphash.Bytes(sc.seed, key)%newestKept]
}

// step visits a batch of records. It stops when visit returns false.
func (sc *scanner) step(ctx context.Context, visit func(Record) bool) error {
	err := sc.trace(ctx)
	if err != nil || sc.isSlow() {
		err = cmp.Or(err, walkError(sc.w.Pause(ctx)))
	}
	if err != nil {
		return err
	}
	// Records below the log's begin may have been moved before the index was asked.
	sc.lost = sc.lost || sc.s.log.Begin() > sc.next
	sc.next = sc.w.Position()
	for i := range sc.batch.ops {
		op, t := &sc.batch.ops[i], &sc.batch.traces[i]
		switch {
		case op.Err == nil && !visit(Record{Address: t.source, Key: op.Key, Value: op.Value, Expires: op.Expires}):
			return nil
		case t.newest != 0:
			*sc.newestAt(op.Key) = newestOf{string(op.Key), t.newest}
		}
	}
	return nil
}

// trace finds out which records of the next batch are the newest of their keys.
func (sc *scanner) trace(ctx context.Context) error {
	b := &sc.batch
	b.reset()
	for n, ended := 0, false; !ended && n < scanBatch && len(b.bytes) < traceBatchBytes; n++ {
		found, err := sc.w.Next(ctx)
		if err != nil {
			return walkError(err)
		}
		ended = !found
		address, im := sc.w.Record()
		if !found || im.Header.Tombstone() || sc.s.inner(im.Key) {
			continue
		}
		if known := sc.newestAt(im.Key); known.address > address && known.key == string(im.Key) {
			continue
		}
		t := newTrace(address, sc.end)
		t.early = address >= sc.safe
		b.add(opNewest, t, im)
	}
	return b.run(ctx, sc.s)
}

// traceBatch is a batch of records whose chains are followed together, without tombstones. It
// owns copies of their bytes.
type traceBatch struct {
	ops    []Op
	traces []trace
	bytes  []byte
}

// traceBatchBytes bounds the bytes of a batch.
const traceBatchBytes = 1 << 20

func (b *traceBatch) reset() { b.ops, b.traces, b.bytes = b.ops[:0], b.traces[:0], b.bytes[:0] }

// add adds a record. Slices of earlier records remain valid when bytes grows: they refer to
// the old memory.
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

// run executes the batch, until ctx ends. ErrNotFound is in the Op; any other error is returned.
func (b *traceBatch) run(ctx context.Context, s *Session) error {
	s.traces = b.traces
	for i := range b.ops {
		b.ops[i].trace = uint32(i + 1)
	}
	return s.Do(ctx, b.ops)
}

// Record is a record that an iteration found. Its bytes are valid until the next step of the
// iteration.
type Record struct {
	Address   int64 // log address
	Key       []byte
	Value     []byte // undefined for a tombstone
	Expires   int64  // milliseconds of Unix time; 0: never
	Tombstone bool   // the record deletes its key
}

// ScanLog iterates over all records of the log that begin in [from, to), oldest first, while
// operations go on. It includes replaced and expired records and tombstones. If from is 0, it
// starts at the log's begin; if to is 0, it ends at the tail. Records that compaction
// truncates meanwhile are left out. An error ends the iteration.
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
			ctx := context.Background()
			var paused error
			var c caller
			err := s.walk(ctx, max(from, 0), st.log.SettleTo(to), func(address int64, im hlog.Image) bool {
				if c.isSlow() {
					paused = s.walker.Pause(ctx)
				}
				return paused == nil && yield(Record{
					Address: address, Key: im.Key, Value: im.Value,
					Expires: im.Expires, Tombstone: im.Header.Tombstone(),
				}, nil)
			})
			return cmp.Or(err, walkError(paused))
		})
		if err != nil {
			yield(Record{}, err)
		}
	}
}

// ownWalker returns the session's walker. A session has one.
func (s *Session) ownWalker() (*hlog.Walker, error) {
	if s.unusable != nil {
		return nil, s.unusable
	}
	if s.walker == nil {
		s.walker = s.log.NewWalker(&s.handle)
	}
	return s.walker, nil
}

// walk visits the records between two addresses until visit returns false, or ctx ends while it waits
// for the device.
func (s *Session) walk(ctx context.Context, from, to int64, visit func(address int64, im hlog.Image) bool) error {
	w, err := s.ownWalker()
	if err == nil {
		err = w.Walk(ctx, from, to)
	}
	if err != nil {
		return walkError(err)
	}
	for found := true; found && err == nil; {
		if found, err = w.Next(ctx); found && err == nil {
			found = visit(w.Record())
		}
	}
	return walkError(cmp.Or(err, w.Pause(ctx)))
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
