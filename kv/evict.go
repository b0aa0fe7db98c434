package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
	"github.com/redykv/redykv/kv/internal/phase"
)

// Eviction makes the store a cache: when its log is too long, it drops the oldest records, live or
// not. A record that was used since it was written, or copied, gets a second chance: it is copied to
// the tail. The zero value disables eviction.
//
// A key is dropped at one moment, as by a delete, and is no longer counted from then on. Inner records
// ([Options.Inner]) are copied as long as they belong to something, and dropped after the record that
// names them.
type Eviction struct {
	// MaxLog is the length of the log in bytes, from its begin address to its tail, at which the
	// oldest records are dropped. The log gets longer for a moment while writes are faster than
	// that. At least Options.Memory. 0: nothing is dropped.
	MaxLog int64
	// Recent reports whether a key was used lately; then its record is copied. It is called once
	// for each live record at the log's begin, by one goroutine, and must not use the store. nil:
	// the store drops records in the order of their writes.
	Recent func(key []byte) bool
	// Evicted is called for each key that was dropped, soon afterwards, by the same goroutine. It may
	// use the store. It must not keep the key. It may be nil.
	Evicted func(key []byte)
}

func (e *Eviction) check(memory int64) error {
	switch {
	case e.MaxLog < 0:
		return fmt.Errorf("kv: Options.Eviction.MaxLog %d, want 0 or more", e.MaxLog)
	case e.MaxLog > 0 && e.MaxLog < memory:
		return fmt.Errorf("kv: Options.Eviction.MaxLog %d is less than Memory, %d", e.MaxLog, memory)
	case e.MaxLog == 0 && (e.Recent != nil || e.Evicted != nil):
		return errors.New("kv: Options.Eviction has functions, but no MaxLog")
	}
	return nil
}

const (
	// evictPortion is the number of bytes that are dropped together; their keys are remembered
	// meanwhile, and looked up in a barrier.
	evictPortion = 512 << 10
	// leastParts limits the number of portions that the log has.
	leastParts = 64
	// evictCommit is the number of bytes after which space is freed on the device, which takes a
	// commit.
	evictCommit = 32 << 20
	// keptShare is the largest share of a portion that is copied, so that the log gets shorter by
	// the rest.
	keptShare = 0.75
	// evictEvery is how often the store looks whether its log is too long.
	evictEvery = 10 * time.Millisecond
	// evictAgain is the time after a failure in which nothing is dropped.
	evictAgain = time.Second
	// evictTries is how often a portion is tried whose keys other sessions change meanwhile.
	evictTries = 100
)

// evictor drops the oldest records.
type evictor struct {
	st    *Store
	s     *Session // during a run
	batch traceBatch
	moved traceBatch
	orphans

	victims []victim
	keys    []byte // of victims
	kept    int64  // bytes copied of the portion

	info EvictionMetrics // of the run
}

// victim is a live record that is to be dropped.
type victim struct {
	key     []byte
	head    int64 // the newest address of its chain when it was the newest of its key
	expires int64
}

// startEvictor starts eviction if the options enable it.
func (st *Store) startEvictor() {
	if st.opts.Eviction.MaxLog == 0 {
		return
	}
	e := &evictor{st: st}
	var due time.Time
	st.automatic.every(evictEvery, func() {
		if e.excess() <= 0 || time.Now().Before(due) {
			return
		}
		st.autoCompactor.hold(func(ctx context.Context) {
			if err := e.run(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
				st.opts.Logger.Error("eviction", "err", err)
				st.failed("eviction", err)
				due = time.Now().Add(evictAgain)
			}
		})
	})
}

// excess returns the number of bytes by which the log is too long.
func (e *evictor) excess() int64 {
	log := e.st.log
	return log.Tail() - log.Begin() - e.st.opts.Eviction.MaxLog
}

// run drops records until the log is short enough.
func (e *evictor) run(ctx context.Context) error {
	st := e.st
	if err := st.begin(ctx, phase.Compact, "evicting"); err != nil {
		return err
	}
	defer st.end(phase.Compact)
	e.info = EvictionMetrics{}
	err := st.withAny(func(s *Session) error {
		if s.unusable != nil {
			return s.unusable
		}
		e.s = s
		defer func() { e.s = nil }()
		return e.catchUp(ctx)
	})
	st.count(func(m *Metrics) { m.Eviction.add(&e.info) })
	if err != nil {
		return fmt.Errorf("kv: evicting from %d: %w", st.log.Begin(), err)
	}
	return nil
}

func (e *evictor) catchUp(ctx context.Context) (err error) {
	log := e.st.log
	freed := log.Begin()
	for err == nil && ctx.Err() == nil && e.excess() > 0 {
		page := int64(log.PageSize())
		from := log.Begin()
		size := min(max(e.excess(), e.st.opts.Eviction.MaxLog/leastParts, page), max(evictPortion, page))
		to := min(from+size+page-1, log.SafeReadOnly()) &^ (page - 1)
		if to <= from { // the rest is still written to
			break
		}
		if err = e.portion(ctx, from, to); err == nil && to-freed >= evictCommit {
			err = e.st.truncate(ctx, to)
			freed = to
		}
	}
	if begin := log.Begin(); err == nil && ctx.Err() == nil && begin > freed {
		err = e.st.truncate(ctx, begin)
	}
	return err
}

// portion drops the records between two addresses, the first of which is the log's begin.
func (e *evictor) portion(ctx context.Context, from, to int64) error {
	for range evictTries {
		e.victims, e.keys, e.kept = e.victims[:0], e.keys[:0], 0
		if err := e.choose(ctx, from, to); err != nil {
			return err
		}
		dropped := false
		if err := e.st.exclusive(ctx, func() { dropped = e.drop(from, to) }); err != nil {
			return err
		}
		if !dropped {
			if e.st.log.Begin() != from {
				return nil // a Clear has dropped all
			}
			continue
		}
		e.info.Portions++
		e.info.Keys += uint64(len(e.victims))
		e.info.Bytes += to - from
		if told := e.st.opts.Eviction.Evicted; told != nil {
			for i := range e.victims {
				told(e.victims[i].key)
			}
		}
		return nil
	}
	return fmt.Errorf("the keys of the records from %d to %d change too fast", from, to)
}

// choose finds the live records of a portion. It copies those that were used lately, as far as it may,
// and makes the others victims.
func (e *evictor) choose(ctx context.Context, from, to int64) error {
	e.batch.reset()
	if e.st.opts.Orphans != nil {
		// Whoever wrote an inner record of the portion has also written the record that names it.
		if err := e.st.exclusive(ctx, func() {}); err != nil {
			return err
		}
	}
	var failed error
	err := e.s.walk(ctx, from, to, func(address int64, im hlog.Image) bool {
		if !im.Header.Tombstone() && !e.s.expired(im.Expires) {
			e.batch.add(opNewest, newTrace(address, hlog.MaxAddress), im)
		}
		if len(e.batch.ops) >= scanBatch || len(e.batch.bytes) >= traceBatchBytes {
			if failed = ctx.Err(); failed == nil {
				failed = e.sort(ctx, to-from)
			}
		}
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return e.sort(ctx, to-from)
}

// sort looks which records of the batch are the newest of their keys, and copies these or makes them
// victims. size is the portion's.
func (e *evictor) sort(ctx context.Context, size int64) error {
	if err := e.batch.run(ctx, e.s); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	recent := e.st.opts.Eviction.Recent
	e.moved.reset()
	for i := range e.batch.ops {
		op, t := &e.batch.ops[i], &e.batch.traces[i]
		if op.Err != nil {
			continue
		}
		if e.s.inner(op.Key) {
			e.move(op, t)
			continue
		}
		record := e.sizeOf(op)
		if recent != nil && recent(op.Key) && e.kept+record <= int64(keptShare*float64(size)) {
			e.kept += record
			e.info.Kept++
			e.info.KeptBytes += record
			e.move(op, t)
			continue
		}
		at := len(e.keys)
		e.keys = append(e.keys, op.Key...)
		e.victims = append(e.victims, victim{key: e.keys[at:len(e.keys):len(e.keys)], head: t.head, expires: op.Expires})
	}
	_, err := e.moved.dropOrphans(ctx, e.s, &e.orphans)
	if err != nil {
		return err
	}
	for i := range e.moved.ops {
		if op := &e.moved.ops[i]; e.s.inner(op.Key) {
			// They count as kept, so that their portion keeps fewer of the records that name them.
			e.kept += e.sizeOf(op)
		}
	}
	if len(e.moved.ops) > 0 {
		err = e.moved.run(ctx, e.s)
	}
	e.batch.reset()
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return err
}

// move adds a record to those that are copied.
func (e *evictor) move(op *Op, t *trace) {
	e.moved.ops = append(e.moved.ops, Op{Kind: opMove, Key: op.Key, Value: op.Value, Expires: op.Expires})
	e.moved.traces = append(e.moved.traces, newTrace(t.source, hlog.MaxAddress))
}

// sizeOf returns the size of a record in the log.
func (e *evictor) sizeOf(op *Op) int64 {
	return int64(e.s.layout.Size(len(op.Key), len(op.Value), op.Expires != 0))
}

// drop moves the log's begin and counts the victims no more, except those whose keys have been
// written since they were chosen. It runs in a barrier. It changes nothing and returns false if it
// cannot tell which those are, or if the log has been cleared.
func (e *evictor) drop(from, to int64) bool {
	if e.st.log.Begin() != from {
		return false
	}
	v := e.s.view
	v.look(e.st)
	gone := e.victims[:0]
	for i := range e.victims {
		is, ok := e.still(&v, &e.victims[i])
		if !ok {
			return false
		}
		if is {
			gone = append(gone, e.victims[i])
		}
	}
	e.victims = gone
	for i := range gone {
		e.s.recount(gone[i].key, true, gone[i].expires, Remove, 0)
	}
	e.st.log.SetBegin(to)
	return true
}

// still reports whether a victim is still the newest record of its key. ok is false if that cannot be
// told: newer records of its chain are on the device, or its bucket is being moved.
func (e *evictor) still(v *view, of *victim) (is, ok bool) {
	place, entry, busy := v.index.Locate(e.s.hash(of.key))
	if busy || place.None() {
		return false, false
	}
	return e.unchanged(v, entry, of)
}

func (e *evictor) unchanged(v *view, entry index.Entry, of *victim) (is, ok bool) {
	next := entry.Address()
	for next > of.head {
		if next < v.head {
			return false, false
		}
		r := v.record(next)
		if e.s.layout.KeyEqual(r, of.key) {
			return false, true
		}
		next = r.Header().Previous()
	}
	return next == of.head, next == of.head
}
