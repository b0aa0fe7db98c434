package readcache

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

// shard is what is not in its memory. Readers look at base and head, and all
// but the first are written by writers only.
type shard struct {
	base unsafe.Pointer // never changes
	head atomic.Uint64  // a place: below it, the ring may have been overwritten
	full atomic.Bool    // it has evicted: from now on records must earn their place
	_    [40]byte

	declined, dropped atomic.Uint64

	mu                sync.Mutex // guards all below, and writing to the memory
	retired           bool
	tail              place  // the next record goes here; at most a lap ahead of head
	scratch           []byte // a record on its way from head to tail
	entries, bytes    int64
	added, evicted    uint64
	secondChancesLeft int
	_                 [24]byte // the next one's lines are its own
}

// secondChances is how many records that were read since they were written one
// insertion writes again before it evicts the next one nevertheless.
const secondChances = 16

// insert puts a record at the tail, unless it is there already. The caller holds
// the lock.
func (t *table) insert(s *shard, addr int64, record []byte) {
	hash := mix(addr)
	bucket, want := t.bucketOf(s, hash), newEntry(hash)
	for i := range bucketEntries {
		e := entry(atomic.LoadUint64(entryAt(bucket, i)))
		if e.matches(want) && t.noteAt(s, e.place()).address() == addr {
			return
		}
	}
	s.secondChancesLeft = secondChances
	p := t.write(s, newNote(addr, len(record)), record)
	cell := t.freeEntry(s, bucket) // after writing: that may have freed one
	atomic.StoreUint64(cell, uint64(want.at(p)))
	s.entries++
	s.bytes += int64(len(record))
	s.added++
}

// freeEntry frees a entry of the bucket if none is free: of records that were not
// read lately, if there are any, it gives up the oldest.
func (t *table) freeEntry(s *shard, bucket unsafe.Pointer) *uint64 {
	var victim *uint64
	var worst entry
	for i := range bucketEntries {
		cell := entryAt(bucket, i)
		e := entry(atomic.LoadUint64(cell))
		if e == 0 {
			return cell
		}
		// The referenced bit stands above the place: the least is both.
		if rank := e & (entryReferenced | placeMask); victim == nil || rank < worst {
			victim, worst = cell, rank
		}
	}
	t.forget(s, victim)
	if s.entries > int64(t.buckets*perBucketFull) {
		s.full.Store(true) // of entries, though its ring may not be
	}
	return victim
}

// forget clears a entry that is in use.
func (t *table) forget(s *shard, cell *uint64) {
	n := t.noteAt(s, entry(atomic.LoadUint64(cell)).place())
	atomic.StoreUint64(cell, 0)
	s.entries--
	s.bytes -= int64(n.length())
	s.evicted++
}

// entryOf is the entry of the record of addr at p, or nil if it has lost it.
func (t *table) entryOf(s *shard, addr int64, p place) *uint64 {
	bucket := t.bucketOf(s, mix(addr))
	for i := range bucketEntries {
		if cell := entryAt(bucket, i); entry(atomic.LoadUint64(cell)).place() == p {
			return cell
		}
	}
	return nil
}

func (t *table) noteAt(s *shard, p place) note {
	_, word := t.split(p)
	return note(atomic.LoadUint64(t.wordAt(s, word)))
}

// write makes room for a record at the tail, writes it and returns its place.
func (t *table) write(s *shard, n note, record []byte) place {
	p := t.reserve(s, n.words())
	_, word := t.split(p)
	atomic.StoreUint64(t.wordAt(s, word), uint64(n))
	mem.CopyIn(unsafe.Pointer(t.wordAt(s, word+1)), record)
	return p
}

// reserve takes so many words at the tail that lie in one piece. Head is at most
// one lap behind: either in the tail's lap, and all from the tail to the ring's
// end is free, or one before, and all from the tail to head is.
func (t *table) reserve(s *shard, need uint64) place {
	for {
		lap, word := t.split(s.tail) // anew each time: evict may write, too
		headLap, headWord := t.split(place(s.head.Load()))
		inOnePiece := word+need <= t.ringWords
		switch {
		case inOnePiece && (headLap == lap || headWord >= word+need):
			p := s.tail
			s.tail = t.after(p, need)
			return p
		case !inOnePiece && headLap == lap:
			atomic.StoreUint64(t.wordAt(s, word), uint64(newNote(0, 0)))
			s.tail = t.after(s.tail, t.ringWords)
		default:
			t.evict(s)
		}
	}
}

// evict takes the oldest record out of the ring. If it was read since it was
// written, and there are second chances left, it goes back in at the tail.
func (t *table) evict(s *shard) {
	p := place(s.head.Load())
	n := t.noteAt(s, p)
	if n.address() == 0 {
		s.moveHead(t.after(p, t.ringWords))
		return
	}
	next := t.after(p, n.words())
	cell := t.entryOf(s, n.address(), p)
	switch {
	case cell == nil:
		s.moveHead(next)
	case entry(atomic.LoadUint64(cell)).referenced() && s.secondChancesLeft > 0:
		_, word := t.split(p)
		s.scratch = mem.AppendOut(s.scratch[:0], unsafe.Pointer(t.wordAt(s, word+1)), n.length())
		s.moveHead(next)
		// Where the ring ends, more may have to go to make room in one piece: that
		// must not come here again.
		left := s.secondChancesLeft
		s.secondChancesLeft = 0
		again := t.write(s, n, s.scratch)
		s.secondChancesLeft = left - 1
		atomic.StoreUint64(cell, uint64(newEntry(mix(n.address())).at(again)))
	default:
		t.forget(s, cell)
		s.full.Store(true)
		s.moveHead(next)
	}
}

// moveHead says that what is below p will be overwritten, before it is.
func (s *shard) moveHead(p place) {
	s.head.Store(uint64(p))
	mem.StoreFence()
}
