package readcache

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

// shard is the state of a shard beside its memory. Readers load base and head. All fields but
// base are written by writers only.
type shard struct {
	base unsafe.Pointer // never changes
	head atomic.Uint64  // below this place the ring may have been overwritten
	full atomic.Bool    // the shard has evicted: new records must have a ghost to be admitted
	_    [40]byte

	declined, dropped atomic.Uint64

	mu                sync.Mutex // guards the fields below and writes to the shard's memory
	retired           bool
	tail              place  // place of the next record, at most a lap ahead of head
	scratch           []byte // buffer for a record that is moved from head to tail
	entries, bytes    int64
	added, evicted    uint64
	secondChancesLeft int
	_                 [24]byte // keeps the next shard on other cache lines
}

// secondChances is the number of read records that one insertion may write again at the tail.
// After that it evicts records even if they were read.
const secondChances = 16

// insert writes a record at the tail, unless it is cached already. The caller holds the lock.
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
	cell := t.freeEntry(s, bucket) // after write, which may have freed an entry
	atomic.StoreUint64(cell, uint64(want.at(p)))
	s.entries++
	s.bytes += int64(len(record))
	s.added++
}

// freeEntry returns a free entry of the bucket. If there is none it evicts the oldest record,
// preferring those that were not read recently.
func (t *table) freeEntry(s *shard, bucket unsafe.Pointer) *uint64 {
	var victim *uint64
	var worst entry
	for i := range bucketEntries {
		cell := entryAt(bucket, i)
		e := entry(atomic.LoadUint64(cell))
		if e == 0 {
			return cell
		}
		// The referenced bit is above the place, so the least value is the oldest record that
		// was not read.
		if rank := e & (entryReferenced | placeMask); victim == nil || rank < worst {
			victim, worst = cell, rank
		}
	}
	t.forget(s, victim)
	if s.entries > int64(t.buckets*perBucketFull) {
		s.full.Store(true) // its entries are used up, though its ring may have room
	}
	return victim
}

// forget clears an entry that is in use.
func (t *table) forget(s *shard, cell *uint64) {
	n := t.noteAt(s, entry(atomic.LoadUint64(cell)).place())
	atomic.StoreUint64(cell, 0)
	s.entries--
	s.bytes -= int64(n.length())
	s.evicted++
}

// entryOf returns the entry of the record of addr at p, or nil if the record has none any
// more.
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

// reserve allocates need contiguous words at the tail. Head is at most one lap behind: it is
// either in the tail's lap, and everything from the tail to the ring's end is free, or one lap
// before, and everything from the tail to head is.
func (t *table) reserve(s *shard, need uint64) place {
	for {
		lap, word := t.split(s.tail) // recomputed, because evict may write too
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

// evict removes the oldest record from the ring. A record that was read since it was written
// is written again at the tail, while second chances remain.
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
		// At the ring's end write may evict again to get contiguous words. Second chances are
		// suspended so that this does not recurse.
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

// moveHead announces that everything below p will be overwritten.
func (s *shard) moveHead(p place) {
	s.head.Store(uint64(p))
	mem.StoreFence()
}
