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

// sweep finds the records that readers see in the order of the index: the keys of
// one bucket after the other, each once, as long as it stays there. It reads the
// entries of some buckets, a group, and follows their chains from the newest record
// down, so that the first record of a key is its newest. The chains of a group are
// followed together, and so are their reads from the device.
//
// Compaction may truncate a chain below the sweep: what it moved is in front then,
// where the entry leads now. So the group's entries are read again, and followed down to
// the records that were there when they were read the last time: a sweep ends though
// truncations are more frequent than it takes to follow a chain. The group's keys that
// were found already are known.
//
// A sweep belongs to one goroutine at a time, which lends it a session.
type sweep struct {
	s     *Session
	floor int64 // only keys whose newest records lie there or above
	at    uint64
	to    uint64 // the group's buckets have the positions [at, to)
	begin int64  // of the log, and…
	now   int64  // …the time, when the group's entries were read
	known int64  // records below were reachable from these entries, 0: they were not read yet
	links []link // of the group that are still to be followed
	seen  map[string]struct{}
	width int // links that are followed together

	ops    []Op // of these, and their traces
	traces []trace
}

// link is a record that a sweep has still to look at.
type link struct {
	address int64
	floor   int64 // records below are not of interest
	// A hash of which the bits in mask are those of class belongs to the entry from
	// which the chain starts. Older records may have come there from an index with
	// fewer buckets, whose chains were shared by other keys.
	mask, class uint64
}

const (
	sweepWidth   = 256     // links followed together, at most
	sweepBytes   = 1 << 20 // of their records, about
	sweepBuckets = 1 << 12 // looked at in one stay in an epoch
)

func newSweep(s *Session, position uint64, floor int64) *sweep {
	return &sweep{s: s, floor: floor, at: position, to: position, width: 16, seen: map[string]struct{}{}}
}

// gather reads the entries of the group, which begins at position at: until it has so many
// links, but at least up to the position upTo. It adds links to those records that the
// group's entries did not lead to when they were read before.
func (w *sweep) gather(want int, upTo uint64) {
	for !w.tryGather(want, upTo) {
		runtime.Gosched() // a bucket is being moved, which takes less than microseconds
	}
}

func (w *sweep) tryGather(want int, upTo uint64) (ok bool) {
	s := w.s
	s.enter()
	defer s.leave()
	w.to, w.now = w.at, s.store.now()
	// Compaction waits for this stay before it moves the begin behind copies whose
	// entries were not seen here.
	w.begin = max(s.log.Begin(), w.floor)
	// Who appended a record below has published it: he has left his epoch.
	known, kept := s.log.SafeReadOnly(), len(w.links)
	for n := 0; w.to < index.Positions; n++ {
		if w.to >= upTo && (len(w.links) >= want || n >= sweepBuckets) {
			break
		}
		bucket, behind := index.BucketAt(w.to, s.view.index.Bits())
		if !w.gatherBucket(s.view.index, bucket) {
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

// gatherBucket adds the links of a bucket, none if it is being moved.
func (w *sweep) gatherBucket(t *index.Table, bucket uint64) (ok bool) {
	before, lowest := len(w.links), max(w.begin, w.known)
	ok = t.Visit(bucket, func(address int64, mask, class uint64) {
		if address >= lowest {
			w.links = append(w.links, link{address, lowest, mask, class})
		}
	})
	if !ok {
		w.links = w.links[:before]
	}
	return ok
}

// follow looks at the records of some links, most at most, and replaces these by
// those of the records before them. n is how many, goOn what visit says.
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
			return n, false, corrupt(at.address, "previous record at %d", h.Previous())
		}
		size += len(op.Key) + len(op.Value)
		if goOn, err := w.look(op, at, h, visit); err != nil || !goOn {
			return n, false, err
		}
		if h.Previous() >= max(w.begin, at.floor) {
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

// look shows visit a record if it is its key's newest, and readers see it.
func (w *sweep) look(op *Op, at link, h hlog.Header, visit func(Record) bool) (goOn bool, err error) {
	if w.s.hash(op.Key)&at.mask != at.class {
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
		// It lived when the group's entries were read, and may have got another life
		// since, in a newer record.
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

// next begins the next group, and says whether there is one.
func (w *sweep) next(want int) bool {
	w.at, w.known = w.to, 0
	clear(w.seen)
	if w.at >= index.Positions {
		return false
	}
	w.gather(want, w.at)
	return true
}

// A step of a scan ends after so much work, whatever it has found: chains of keys
// that are written all the time are long, and each of their records may be read
// from the device.
const (
	stepRecords  = 1 << 16 // the default of Options.stepRecords
	stepBuckets  = 1 << 18
	stepDuration = 100 * time.Millisecond
)

// step is a step of a scan: about count records that visit is shown.
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

// sweeps keeps the groups of scans that are not finished by a step's end, under the
// cursors that the steps gave. There are few: most groups are followed to their ends
// in one step. One that was forgotten, for others or with the store's end, or whose
// cursor is given twice, is begun anew, and its keys are found again.
type sweeps struct {
	mu   sync.Mutex // guards all
	turn uint16
	kept [16]struct {
		cursor Cursor
		sweep  *sweep
	}
}

// keep puts a sweep aside and returns the cursor that it is taken by.
func (k *sweeps) keep(w *sweep) Cursor {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.turn == 0 { // cursors of an earlier process mean nothing
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

// take returns the sweep that goes on at a cursor.
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

// ScanFrom is Scan in steps, in another order: it calls visit for about count
// records, more than 0, that readers see, and returns where to go on: 0 at the end.
// A key that is there from the first step to the last one is found, and found once,
// whatever is written or compacted meanwhile. The order is that of the keys' hashes.
//
// A step looks at a bounded number of records: where many of them are old ones, it
// may find fewer than count, or none.
//
// Scans may be left, taken up again after the store was closed and opened, or by
// two callers. If visit returns false, the step ends, and the records of its last
// group of buckets are found again; so are those of some buckets if a scan is taken
// up again where its last step has ended in the middle of them, after the store was
// opened anew, for the second time, or after many others.
func (st *Store) ScanFrom(at Cursor, count int, visit func(Record) bool) (next Cursor, err error) {
	if count < 1 {
		return at, fmt.Errorf("kv: scan of %d records", count)
	}
	if at.position() >= index.Positions {
		return at, fmt.Errorf("kv: cursor %d is none that a scan gave", at)
	}
	if err := st.inModifier(); err != nil { // a record may be locked
		return at, fmt.Errorf("kv: scanning: %w", err)
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
		case !goOn: // also where that is the position that a scan begins at
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

// Cursor is where a scan in steps goes on. 0 is its beginning, and what it ends
// with. It is a number below 2^53, so that clients of any protocol can keep it,
// those too that keep numbers as floating-point ones.
//
//	52  51..16              15..0
//	0   position in the     turn: which of the unfinished
//	    order of buckets    steps there (see sweeps); 0: none
//
// A position is the number of an index bucket with its bits reversed, as a
// fraction: the lowest bit of the hash comes first. In this order the two buckets
// into which a bucket is split when the index grows take its place, so that a
// scan goes on in an index of another size. A key's position is its hash and
// nothing else: neither writers nor compaction move it, so a scan needs to know
// nothing of the log, and ends.
type Cursor uint64

const turnBits = 16

func newCursor(position uint64, turn uint16) Cursor {
	return Cursor(position<<turnBits | uint64(turn))
}

func (c Cursor) position() uint64 { return uint64(c >> turnBits) }

// ParseCursor is the inverse of String. Any number below 2^52 is a cursor: one that
// no scan gave leads to some of the records.
func ParseCursor(text string) (Cursor, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n >= index.Positions<<turnBits {
		return 0, fmt.Errorf("kv: cursor %q is no number below %d", text, index.Positions<<turnBits)
	}
	return Cursor(n), nil
}

// String is the cursor as a decimal number.
func (c Cursor) String() string { return strconv.FormatUint(uint64(c), 10) }

// CursorAt is the cursor of a scan that begins in the middle, with that share of
// the keys behind it, 0 to 1.
func CursorAt(share float64) Cursor {
	return newCursor(uint64(max(share, 0)*float64(index.Positions))%index.Positions, 0)
}
