package kv

import (
	"errors"

	"github.com/redykv/redykv/kv/internal/index"
)

// laneSize is the number of operations in a lane: more than the processor executes while it
// waits for a cache line, and more than the lines that it can wait for at once.
const laneSize = 64

// lane is a group of operations that go through the index together. A session has two, which
// alternate. When one is full, advance
//
//  1. hashes its keys and prefetches their index buckets,
//  2. finishes the operations of the other lane, whose records were prefetched before,
//  3. scans the buckets, which have arrived meanwhile, and prefetches the records.
//
// advance is one stay in an epoch.
type lane struct {
	next, n int          // operations [next, n) are not finished
	stream  bool         // operations of Submit; else of Do
	index   *index.Table // the index that scan has used
	ops     [laneSize]*Op
	hashes  [laneSize]uint64
	places  [laneSize]index.Place // places of their entries, empty if scan found none

	// Operations whose entries may be behind their first bucket.
	behind  [laneSize]uint8
	nBehind int
}

// stage adds an operation of a stream to the lane that is being filled.
func (s *Session) stage(op *Op) {
	l := s.filling
	l.stream = true
	l.ops[l.n] = op
	if l.n++; l.n == laneSize {
		s.advance()
	}
}

// stageAll adds operations of a batch to the lane that is being filled while there is room,
// and returns their number.
func (s *Session) stageAll(ops []Op) int {
	l := s.filling
	l.stream = false
	room := l.ops[l.n:]
	n := min(len(room), len(ops))
	for i := range room[:n] {
		room[i] = &ops[i]
	}
	if l.n += n; l.n == laneSize {
		s.advance()
	}
	return n
}

// hashLane hashes the keys of the lane and prefetches their buckets.
func (s *Session) hashLane(l *lane) {
	i := 0
	if s.words {
		i = s.view.hashWords(l)
	}
	for ; i < l.n; i++ {
		l.hashes[i] = s.hash(l.ops[i].Key)
		s.view.index.Prefetch(l.hashes[i])
	}
}

// advance finishes the scanned lane and scans the filled one.
func (s *Session) advance() {
	s.enter()
	defer func() { // deferred, since the user's code may panic
		s.leave()
		if s.unsubmitted >= doorbellEvery {
			s.submitReads()
		}
	}()
	s.scanBehind(s.scanned)
	s.hashLane(s.filling)
	if s.view.sampled != 0 {
		s.sampleLane(s.filling)
	}
	s.finish(s.scanned)
	s.scan(s.filling)
	s.filling, s.scanned = s.scanned, s.filling
}

// flush finishes the operations in the lanes: afterwards they are complete or pending.
func (s *Session) flush() {
	for s.filling.n > 0 || s.scanned.n > 0 {
		s.advance()
	}
}

// scan finds the entries of the lane's operations and prefetches their records.
func (s *Session) scan(l *lane) {
	l.index = s.view.index
	if s.view.scan(l) > 0 {
		s.prefetchBehind(l)
	}
	if s.cache != nil {
		s.eachCold(l, s.cache.Prefetch)
	}
}

// prefetchBehind prefetches the buckets that may have the entries missing in the first
// buckets: the overflow bucket, and a bucket of the larger table while the index grows.
func (s *Session) prefetchBehind(l *lane) {
	for i := range l.n {
		if l.places[i].None() && l.index.PrefetchBehind(l.hashes[i]) {
			l.behind[l.nBehind] = uint8(i)
			l.nBehind++
		}
	}
}

// scanBehind is scan in the buckets that prefetchBehind has prefetched.
func (s *Session) scanBehind(l *lane) {
	behind := l.behind[:l.nBehind]
	l.nBehind = 0
	if l.index != s.view.index {
		return // finish looks up all of them again
	}
	for _, i := range behind {
		at, e, _ := l.index.Locate(l.hashes[i])
		if l.places[i] = at; at.None() {
			continue
		}
		s.view.prefetch(e.Address())
		if s.cache != nil && e.Address() < s.view.head {
			s.cache.Prefetch(e.Address())
		}
	}
}

// eachCold calls f with the address of each record of the lane that is not in the log's memory.
func (s *Session) eachCold(l *lane, f func(address int64)) {
	for _, place := range l.places[:l.n] {
		if place.None() {
			continue
		}
		if a := place.Load().Address(); a < s.view.head {
			f(a)
		}
	}
}

// finish executes the lane's operations in their order and empties the lane. It loads the
// entries that scan found again, since they may have changed, also by operations of this
// session.
func (s *Session) finish(l *lane) {
	current := l.index == s.view.index
	if current && s.cache != nil {
		s.eachCold(l, s.cache.PrefetchRecord)
	}
	defer func() {
		if l.n > 0 {
			s.inUserCode = false
			s.abandon(l)
		}
	}()
	if current {
		for i := range min(restAhead, l.n) {
			if s.long(l.ops[i]) {
				s.prefetchRest(l.ops[i], l.places[i])
			}
		}
	}
	for l.next < l.n {
		if current && s.words && s.allPendingRMWs == 0 && !s.view.guarded {
			s.inUserCode = true
			s.finishWords(l)
			s.inUserCode = false
			if l.next == l.n {
				break
			}
		}
		i := l.next
		l.next++
		op := l.ops[i]
		op.Err = nil
		if !current || l.places[i].None() || s.view.guarded {
			s.finishGeneral(op, l.hashes[i], l.stream)
		} else {
			if next := i + restAhead; next < l.n && s.long(l.ops[next]) {
				s.prefetchRest(l.ops[next], l.places[next])
			}
			s.finishAt(op, l.hashes[i], l.places[i], l.stream)
		}
		current = l.index == s.view.index // finishGeneral may have entered another epoch
	}
	l.next, l.n = 0, 0
}

// scan prefetches only the first cache lines of a longer record: all lines of all records of a
// lane would evict each other from the cache before they are used. finish prefetches the rest.
const (
	restAhead = 3       // operations between the prefetch of the rest and its use
	restLimit = 4 << 10 // bytes; beyond them the processor prefetches the sequence by itself
)

// long guesses from an operation's buffer whether its record has a rest to prefetch. The
// record's length may not be in the cache yet.
func (s *Session) long(op *Op) bool {
	switch {
	case s.rest == 0:
		return false
	case op.Kind == OpUpsert:
		return len(op.Value) > s.rest
	}
	return op.Kind == OpRead && cap(op.Value) > s.rest
}

// prefetchRest prefetches the rest of an operation's record, if the operation reads it in
// memory or updates it in place.
func (s *Session) prefetchRest(op *Op, at index.Place) {
	if at.None() {
		return
	}
	a := at.Load().Address()
	if op.Kind == OpRead && a >= s.view.head || s.view.mutable(a) {
		s.layout.PrefetchRest(s.view.record(a), s.rest, restLimit)
	}
}

// abandon ends finish when a Modifier panics. The other operations of a stream continue; those
// of a batch are dropped, since Do does not return.
func (s *Session) abandon(l *lane) {
	if l.stream {
		if op := l.ops[l.next-1]; !errors.Is(op.Err, errPanicked) { // else it was pending and is complete
			s.refuse()
			s.handBack(op, errPanicked, true)
		}
		s.moveUp(l, s.filling)
		return
	}
	for i := range s.lanes {
		s.lanes[i].next, s.lanes[i].n = 0, 0
	}
}

// moveUp moves the remaining operations of a lane to its start and fills it up from the lane
// behind it, so that the next operation has room there. finish looks up the moved operations
// again.
func (s *Session) moveUp(l, behind *lane) {
	n := copy(l.ops[:], l.ops[l.next:l.n])
	copy(l.hashes[:], l.hashes[l.next:l.n])
	moved := copy(l.ops[n:], behind.ops[:behind.n])
	copy(l.hashes[n:], behind.hashes[:behind.n])
	l.next, l.n, l.index = 0, n+moved, nil
	copy(behind.hashes[:], behind.hashes[moved:behind.n])
	behind.n = copy(behind.ops[:], behind.ops[moved:behind.n])
}

// finishAt executes one operation inside finish's epoch, given the place of its entry.
func (s *Session) finishAt(op *Op, hash uint64, at index.Place, stream bool) {
	e := at.Load()
	if !e.Moved() && !s.mustWait(hash) && s.check(op) == nil {
		outcome, where := needsRecord, coldRecord{e, e.Address(), s.log.Begin()}
		if op.Kind != OpRead || where.address >= s.view.head || where.address < where.begin {
			outcome, where = s.tryAt(op, at, e, 0)
		}
		switch outcome {
		case complete:
			s.counts.ops[op.Kind].inc()
			s.handBack(op, op.Err, stream)
			return
		case needsRecord:
			if len(s.free) > 0 && s.queue != nil {
				s.issueWithin(op, hash, stream, where)
				return
			}
		}
	}
	s.finishGeneral(op, hash, stream)
}

// issueWithin is issue and fetch inside finish's epoch. It leaves the epoch if fetch may call
// the user's code.
func (s *Session) issueWithin(op *Op, hash uint64, stream bool, where coldRecord) {
	n := s.issue(op, hash, 0, stream, where)
	if s.cache == nil || op.Kind == OpRead {
		s.fetch(n)
		return
	}
	s.leave()
	s.fetch(n)
	s.enter()
}

// finishGeneral executes an operation the general way, outside finish's epoch.
func (s *Session) finishGeneral(op *Op, hash uint64, stream bool) {
	s.leave()
	before := s.ctx
	if stream {
		s.ctx = s.submits
	}
	complete := s.begin(op, hash, 0, stream)
	s.ctx = before
	s.enter()
	if complete {
		s.handBack(op, op.Err, stream)
	}
}
