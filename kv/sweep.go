package kv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/index"
)

// sweep finds live records in the order of the index: bucket by bucket, and each key once. It
// reads the entries of some buckets, a group, and follows their chains from the newest record
// down, so that the first record of a key is its newest. It follows the chains of a group
// together, so that reads from the device overlap.
//
// Compaction may truncate the log above the record that a sweep is at; the chain's live records
// then have copies at the tail. So the sweep reads the entries of the group again, and follows
// them down to the records that it reached last time: this ends even if truncations come faster
// than a chain can be followed. The sweep remembers the keys of the group that it has found.
//
// A sweep is used by one goroutine at a time, with a session of that goroutine.
type sweep struct {
	s      *Session
	lowest int64 // keys whose newest records lie below are left out
	at     uint64
	to     uint64              // the buckets of the group cover the positions [at, to)
	begin  int64               // the log's begin when the group's entries were read
	now    int64               // the time at that moment
	known  int64               // records below were reachable from the entries; 0: the entries were not read yet
	links  []link              // of the group, to be followed
	seen   map[string]struct{} // keys of the group that were found
	width  int                 // links that are followed together

	ops    []Op // for the links that are followed, and their traces
	traces []trace
}

// link is a record that a sweep has to examine.
type link struct {
	address int64
	lowest  int64 // the chain is not followed below this address
	// Keys whose hashes have the bits class under mask belong to the entry that the chain
	// starts from: see index.Table.Visit.
	mask, class uint64
}

const (
	sweepWidth   = 256     // links followed together, at most
	sweepBytes   = 1 << 20 // of their records, approximately
	sweepBuckets = 1 << 12 // read in one stay in an epoch
)

func newSweep(s *Session, position uint64, lowest int64) *sweep {
	return &sweep{s: s, lowest: lowest, at: position, to: position, width: 16, seen: map[string]struct{}{}}
}

// gather reads the entries of the group, which begins at position at, until it has want links,
// but at least up to position upTo. It adds links to the records that the group's entries did
// not lead to last time.
func (w *sweep) gather(want int, upTo uint64) {
	for !w.tryGather(want, upTo) {
		runtime.Gosched() // a bucket is being moved, which takes microseconds
	}
}

func (w *sweep) tryGather(want int, upTo uint64) (ok bool) {
	s := w.s
	s.enter()
	defer s.leave()
	w.to, w.now = w.at, s.store.now()
	// Compaction publishes its copies before it moves the log's begin, and waits for this
	// stay in between: no copy is missed.
	w.begin = max(s.log.Begin(), w.lowest)
	// Records below were published: the sessions that appended them have left their epochs.
	known, kept := s.log.SafeReadOnly(), len(w.links)
	for n := 0; w.to < index.Positions; n++ {
		if w.to >= upTo && (len(w.links) >= want || n >= sweepBuckets) {
			break
		}
		bucket, behind := index.BucketAt(w.to, s.view.index.Bits())
		before, lowest := len(w.links), max(w.begin, w.known)
		whole := s.view.index.Visit(bucket, func(address int64, mask, class uint64) {
			if address >= lowest {
				w.links = append(w.links, link{address, lowest, mask, class})
			}
		})
		if !whole { // the bucket is being moved
			w.links = w.links[:before]
			break
		}
		w.to = behind
	}
	if w.to == w.at || w.to < upTo {
		w.links = w.links[:kept]
		return false
	}
	w.known = known
	return true
}

// follow examines the records of at most most links, and replaces these links by links to the
// records before them. n is their number; goOn is visit's result.
func (w *sweep) follow(most int, visit func(Record) bool) (n int, goOn bool, err error) {
	n = min(w.width, len(w.links), most)
	for len(w.ops) < n {
		w.ops = append(w.ops, Op{Kind: opLink})
	}
	links, ops := w.links[len(w.links)-n:], w.ops[:n]
	w.traces = w.traces[:0]
	for i := range ops {
		w.traces = append(w.traces, trace{source: links[i].address})
		ops[i].trace = uint32(i + 1)
	}
	w.s.traces = w.traces
	if err := w.s.doLinks(ops); err != nil {
		return n, false, err
	}
	kept := w.links[:len(w.links)-n]
	size, truncated := 0, false
	for i := range ops {
		op, at, h := &ops[i], links[i], w.traces[i].header // at, before kept grows over it
		if op.Err != nil {
			truncated = true
			continue
		}
		if h.Previous() >= at.address {
			return n, false, corrupt(at.address, "its link leads to %d", h.Previous())
		}
		size += len(op.Key) + len(op.Value)
		if goOn, err := w.look(op, at, h, visit); err != nil || !goOn {
			return n, false, err
		}
		if h.Previous() >= max(w.begin, at.lowest) {
			at.address = h.Previous()
			kept = append(kept, at)
		}
		if cap(op.Value) > keepBuffer {
			op.Value = nil
		}
	}
	w.links = kept
	if truncated {
		w.gather(0, w.to)
	}
	switch {
	case size > sweepBytes:
		w.width = max(w.width/2, 1)
	case 2*size < sweepBytes:
		w.width = min(2*w.width, sweepWidth)
	}
	return n, true, nil
}

// look calls visit for a record if it is live and the newest of its key.
func (w *sweep) look(op *Op, at link, h hlog.Header, visit func(Record) bool) (goOn bool, err error) {
	if w.s.hash(op.Key)&at.mask != at.class || w.s.inner(op.Key) {
		return true, nil
	}
	if _, seen := w.seen[string(op.Key)]; seen {
		return true, nil
	}
	w.seen[string(op.Key)] = struct{}{}
	address := at.address
	switch {
	case h.Tombstone(), op.Expires != 0 && op.Expires <= w.now:
		return true, nil
	case w.s.expired(op.Expires):
		// The record has expired since the group's entries were read. A newer record of the key
		// may have replaced it before.
		read := Op{Kind: OpRead, Key: op.Key, Value: op.Value[:0]}
		switch err := w.s.Run(&read); {
		case errors.Is(err, ErrNotFound):
			return true, nil
		case err != nil:
			return false, err
		}
		op.Value, op.Expires = read.Value, read.Expires
	}
	return visit(Record{Address: address, Key: op.Key, Value: op.Value, Expires: op.Expires}), nil
}

// next begins the next group, and returns false if there is none.
func (w *sweep) next(want int) bool {
	w.at, w.known = w.to, 0
	clear(w.seen)
	if w.at >= index.Positions {
		return false
	}
	w.gather(want, w.at)
	return true
}

// A step of a scan ends after this much work, whether or not it found records: the chains of
// keys that are written often are long, and each of their records may be on the device.
const (
	stepRecords  = 1 << 16 // the default of Options.stepRecords
	stepBuckets  = 1 << 18
	stepDuration = 100 * time.Millisecond
)

// step is one step of a scan: it calls visit for about count records.
func (w *sweep) step(count, most int, visit func(Record) bool) (goOn bool, err error) {
	begun, found, buckets := time.Now(), 0, uint64(0)
	counting := func(r Record) bool { found++; return visit(r) }
	for {
		if len(w.links) == 0 {
			if found >= count || most <= 0 || buckets >= stepBuckets || !w.next(min(count-found, sweepWidth)) {
				w.at = w.to
				return true, nil
			}
			buckets += (w.to - w.at) >> (index.PositionBits - w.s.view.index.Bits())
			continue
		}
		if most <= 0 || time.Since(begun) > stepDuration {
			return true, nil
		}
		n, goOn, err := w.follow(most, counting)
		if err != nil || !goOn {
			return goOn, err
		}
		most -= n
	}
}

// sweeps keeps sweeps that are in the middle of a group at the end of a step, by the cursors
// that the steps returned. They are few: most groups are finished in one step. If a sweep was
// dropped, for another one or with the store, or if its cursor is used twice, its group starts
// again, and the group's keys are found again.
type sweeps struct {
	mu   sync.Mutex // guards all fields
	turn uint16
	kept [16]struct {
		cursor Cursor
		sweep  *sweep
	}
}

// keep stores a sweep and returns its cursor.
func (k *sweeps) keep(w *sweep) Cursor {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.turn == 0 { // random, so that cursors of an earlier process are not found
		k.turn = uint16(rand.Uint32())
	}
	if k.turn++; k.turn == 0 {
		k.turn = 1
	}
	at := &k.kept[int(k.turn)%len(k.kept)]
	w.s, w.ops, w.traces = nil, nil, nil
	at.cursor, at.sweep = newCursor(w.at, k.turn), w
	return at.cursor
}

// take returns the sweep that continues at a cursor.
func (k *sweeps) take(at Cursor, s *Session) *sweep {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.kept {
		if kept := &k.kept[i]; kept.sweep != nil && kept.cursor == at {
			w := kept.sweep
			kept.sweep, w.s = nil, s
			return w
		}
	}
	return newSweep(s, at.position(), 0)
}

// ScanFrom is Scan in steps, in the order of the keys' hashes. It calls visit for about count
// live records; count is at least 1. It returns the cursor of the next step, 0 at the end. A
// key that exists from the first step to the last one is found once, regardless of writes and
// compaction.
//
// A step examines a bounded number of records. It may find fewer than count, or none, if many
// of them are old or inner records (Options.Inner), which it passes over.
//
// A scan may be abandoned. It may be continued after the store was closed and opened, or by
// two callers. If visit returns false, the step ends, and the next step finds the records of
// the last group of buckets again. The same happens to a step that continues in the middle of
// a group if the store was opened again, if the cursor is used twice, or if many other scans
// have ended a step in the middle of a group since.
func (st *Store) ScanFrom(at Cursor, count int, visit func(Record) bool) (next Cursor, err error) {
	if count < 1 {
		return at, fmt.Errorf("kv: scan of %d records: want at least 1", count)
	}
	if at.position() >= index.Positions {
		return at, fmt.Errorf("kv: cursor %d is not from a scan; start a scan with cursor 0", at)
	}
	err = st.withAny(func(s *Session) error {
		if s.unusable != nil {
			return s.unusable
		}
		w := st.sweeps.take(at, s)
		goOn, err := w.step(count, st.opts.stepRecords, visit)
		switch {
		case err != nil:
			return err
		case !goOn: // a separate cursor, since position 0 is also the end
			next = st.sweeps.keep(newSweep(nil, w.at, 0))
		case len(w.links) > 0:
			next = st.sweeps.keep(w)
		case w.at < index.Positions:
			next = newCursor(w.at, 0)
		}
		return nil
	})
	return next, err
}

// Cursor is the position of a scan in steps. 0 is both the beginning and the end. A cursor is
// below 2^53, so that clients that store numbers as floating-point numbers can keep it.
//
//	52  51..16                   15..0
//	0   position in the order    turn: which of the unfinished
//	    of buckets (see index)   groups there (see sweeps); 0: none
//
// The position of a key depends only on its hash: neither writers nor compaction move it. So a
// scan ends, and it can continue in an index of another size.
type Cursor uint64

const turnBits = 16

func newCursor(position uint64, turn uint16) Cursor {
	return Cursor(position<<turnBits | uint64(turn))
}

func (c Cursor) position() uint64 { return uint64(c >> turnBits) }

// ParseCursor is the inverse of String. Any number below 2^52 is accepted; a scan from it
// finds some of the records.
func ParseCursor(text string) (Cursor, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n >= index.Positions<<turnBits {
		return 0, fmt.Errorf("kv: cursor %q: want a number below %d", text, index.Positions<<turnBits)
	}
	return Cursor(n), nil
}

// String returns the cursor as a decimal number.
func (c Cursor) String() string { return strconv.FormatUint(uint64(c), 10) }

// CursorAt returns the cursor of a scan that leaves out the first keys: share, from 0 to 1, is
// their share of all keys.
func CursorAt(share float64) Cursor {
	return newCursor(uint64(max(share, 0)*float64(index.Positions))%index.Positions, 0)
}
