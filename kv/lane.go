package kv

import (
	"errors"

	"github.com/redykv/redykv/internal/mem"
)

// laneSize is how many operations go together. A random line takes as long from
// memory as some ten operations take in the cache, and the processor can wait for
// some sixteen at once: more than both must lie between asking for a line and
// using it. 32 were slower by up to a tenth, 128 no faster.
const laneSize = 64

// lane is a group of operations on their way to memory. Two of them alternate: when
// one is full, its operations' index buckets are asked for; then the other's
// operations, whose records have come meanwhile, are finished; then its own buckets,
// which have come meanwhile, are scanned and its records asked for. One stay in an
// epoch covers both.
type lane struct {
	next, n int  // operations [next, n) are still to be finished
	stream  bool // Poll hands them back; Do returns with them otherwise
	table   *table
	ops     [laneSize]*Op
	hashes  [laneSize]uint64
	slots   [laneSize]slot

	behind [laneSize]uint8 // operations that scan found nothing of in their first bucket…
	absent int             // …and how many, while that is so
}

// stage adds an operation of a stream to the lane that is filled, and moves on when that
// is full.
func (s *Session) stage(op *Op) {
	l := s.filling
	l.stream = true
	l.ops[l.n] = op
	if l.n++; l.n == laneSize {
		s.advance()
	}
}

// stageAll stages the first operations of a batch, as many as the lane has room for,
// which it returns.
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

// hashLane hashes the lane's operations and asks for their buckets.
func (s *Session) hashLane(l *lane) {
	i := 0
	if s.words {
		i = s.view.hashWords(l)
	}
	for ; i < l.n; i++ {
		l.hashes[i] = s.hash(l.ops[i].Key)
		s.view.index.prefetch(l.hashes[i])
	}
}

// advance finishes the lane that was scanned and scans the other one.
func (s *Session) advance() {
	s.enter()
	defer func() { // the user's code may panic in there
		s.leave()
		if s.unsubmitted >= doorbellEvery {
			s.submitReads()
		}
	}()
	s.scanBehind(s.scanned)
	s.hashLane(s.filling)
	s.finish(s.scanned)
	s.scan(s.filling)
	s.filling, s.scanned = s.scanned, s.filling
}

// flush finishes what is staged, so that only pending operations are under way.
func (s *Session) flush() {
	for s.filling.n > 0 || s.scanned.n > 0 {
		s.advance()
	}
}

// scan finds the lane's operations in the index and asks for their records.
func (s *Session) scan(l *lane) {
	l.table = s.view.index
	if s.view.scan(l) > 0 {
		s.askBehind(l)
	}
	if s.cache != nil {
		s.eachCold(l, s.cache.Prefetch)
	}
}

// askBehind asks for where the entries may be that the first buckets do not have: in the
// next bucket of the chain, or in the larger table while the index grows.
func (s *Session) askBehind(l *lane) {
	grown := l.table.next.Load()
	for i := range l.n {
		if l.slots[i].p != nil {
			continue
		}
		link := slotIn(l.table.bucket(l.hashes[i]&l.table.mask), bucketEntries).load()
		if link != 0 {
			mem.Prefetch(l.table.bucket(uint64(link)))
		}
		if grown != nil {
			grown.prefetch(l.hashes[i])
		}
		if link != 0 || grown != nil {
			l.behind[l.absent] = uint8(i)
			l.absent++
		}
	}
}

// scanBehind is scan for what askBehind has asked for.
func (s *Session) scanBehind(l *lane) {
	behind := l.behind[:l.absent]
	l.absent = 0
	if l.table != s.view.index {
		return // finish begins anew with all of them
	}
	for _, i := range behind {
		at, e, _ := l.table.locate(l.hashes[i])
		if l.slots[i] = at; at.p == nil {
			continue
		}
		s.view.prefetch(e.address())
		if s.cache != nil && e.address() < s.view.head {
			s.cache.Prefetch(e.address())
		}
	}
}

// eachCold calls f with the address of every record of the lane that is not in
// the log's memory.
func (s *Session) eachCold(l *lane, f func(address int64)) {
	for _, slot := range l.slots[:l.n] {
		if slot.p == nil {
			continue
		}
		if a := slot.load().address(); a < s.view.head {
			f(a)
		}
	}
}

// finish carries the lane's operations out, in their order, and empties it. The
// slots that scan found are loaded again: an entry may have moved on, by this
// session's own doing too, and nothing that scan saw needs to be true any more.
func (s *Session) finish(l *lane) {
	current := l.table == s.view.index
	if current && s.cache != nil {
		s.eachCold(l, s.cache.PrefetchRecord)
	}
	defer func() {
		if l.n > 0 {
			s.asked()
			s.abandon(l)
		}
	}()
	if current {
		for i := range min(restAhead, l.n) {
			if s.long(l.ops[i]) {
				s.prefetchRest(l.ops[i], l.slots[i])
			}
		}
	}
	for l.next < l.n {
		if current && s.words && s.allPendingRMWs == 0 && !s.view.guarded {
			s.asking()
			s.finishWords(l)
			s.asked()
			if l.next == l.n {
				break
			}
		}
		i := l.next
		l.next++
		op := l.ops[i]
		op.Err = nil
		if !current || l.slots[i].p == nil || s.view.guarded {
			s.finishGeneral(op, l.hashes[i], l.stream)
		} else {
			if next := i + restAhead; next < l.n && s.long(l.ops[next]) {
				s.prefetchRest(l.ops[next], l.slots[next])
			}
			s.finishAt(op, l.hashes[i], l.slots[i], l.stream)
		}
		current = l.table == s.view.index // it may have left the epoch
	}
	l.next, l.n = 0, 0
}

// Of a record that is longer than a few lines, scan asks for the first ones. All
// lines of all the lane's records would drive each other out of the cache before they
// are used: the rest is asked for so many operations ahead, and of a very long record
// so many bytes; from there on the processor sees by itself where it goes.
const (
	restAhead = 3
	restLimit = 4 << 10
)

// long guesses from an operation's buffer whether it will come to such a rest. To ask
// each short record for its length so early would cost reads of 100 bytes a twentieth. A
// write does not wait for the lines that it writes to; but the next one does, when it
// locks its record: on an Intel Xeon upserts of 1 KB take a quarter less time so.
func (s *Session) long(op *Op) bool {
	switch {
	case s.rest == 0:
		return false
	case op.Kind == OpUpsert:
		return len(op.Value) > s.rest
	}
	return op.Kind == OpRead && cap(op.Value) > s.rest
}

// prefetchRest asks for the rest of the record that a slot leads to, if the operation
// will read it in memory, or update it there.
func (s *Session) prefetchRest(op *Op, at slot) {
	if at.p == nil {
		return
	}
	a := at.load().address()
	if op.Kind == OpRead && a >= s.view.head || s.view.mutable(a) {
		s.layout.PrefetchRest(s.view.record(a), s.rest, restLimit)
	}
}

// abandon is finish when a Modifier panics. Of a stream everything else goes on;
// of a batch, which the caller will not see end, nothing does.
func (s *Session) abandon(l *lane) {
	if l.stream {
		if op := l.ops[l.next-1]; !errors.Is(op.Err, errPanicked) { // else its pending operation has landed
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

// moveUp fills a lane that was left in the middle from the one behind it, which may
// be full, so that there is room for the next operation there. What it moves is not
// looked for in the index ahead.
func (s *Session) moveUp(l, behind *lane) {
	n := copy(l.ops[:], l.ops[l.next:l.n])
	copy(l.hashes[:], l.hashes[l.next:l.n])
	moved := copy(l.ops[n:], behind.ops[:behind.n])
	copy(l.hashes[n:], behind.hashes[:behind.n])
	l.next, l.n, l.table = 0, n+moved, nil
	copy(behind.hashes[:], behind.hashes[moved:behind.n])
	behind.n = copy(behind.ops[:], behind.ops[moved:behind.n])
}

// finishAt carries one operation out inside the epoch that finish is called in.
func (s *Session) finishAt(op *Op, hash uint64, at slot, stream bool) {
	e := at.load()
	if !e.gone() && s.pendingRMWs[hashByte(hash)] == 0 && s.check(op) == nil {
		outcome, where := needsRecord, coldRecord{e, e.address(), s.log.Begin()}
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

// issueWithin is issue and fetch inside the epoch that finish is called in, which
// it leaves where fetch may call the user's code.
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

// finishGeneral begins an operation from the start, outside the epoch.
func (s *Session) finishGeneral(op *Op, hash uint64, stream bool) {
	s.leave()
	complete := s.begin(op, hash, 0, stream)
	s.enter()
	if complete {
		s.handBack(op, op.Err, stream)
	}
}
