package kv

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/mem"
	"github.com/redykv/redykv/internal/prefetch"
)

// ErrIndexFull says that the store holds many times the keys that its index was
// sized for: open it again with a larger Options.Records.
var ErrIndexFull = errors.New("kv: index full")

// entry is one word of the index:
//
//	63         62    61..48  47..0
//	tentative  used  tag     address of the newest record
//
// The tag is the top of the hash, so that a look at the bucket alone tells most
// other keys apart. All records whose keys share bucket and tag form one chain.
// A tentative entry is being inserted and invisible to all but other inserters.
type entry uint64

const (
	addressBits          = 48
	addressMask    entry = hlog.MaxAddress - 1
	entryUsed      entry = 1 << 62
	entryTentative entry = 1 << 63
	tagBits              = 14
)

func tagOf(hash uint64) entry           { return entry(hash>>(64-tagBits)) << addressBits }
func (e entry) address() int64          { return int64(e & addressMask) }
func (e entry) at(address int64) entry  { return e&^addressMask | entry(address) }
func (e entry) matches(want entry) bool { return e>>addressBits == want>>addressBits }

// slot is where an entry lives.
type slot struct{ p *uint64 }

func (s slot) load() entry { return entry(atomic.LoadUint64(s.p)) }
func (s slot) store(e entry) {
	atomic.StoreUint64(s.p, uint64(e))
}
func (s slot) swap(old, new entry) bool {
	return atomic.CompareAndSwapUint64(s.p, uint64(old), uint64(new))
}

const (
	bucketSize     = 64 // one cache line: seven entries and a link
	bucketEntries  = 7
	perBucket      = 5  // expected entries when as full as planned
	overflowFactor = 16 // overflow buckets for each bucket of the table, at most
)

// index maps hashes to the newest record of their chain. It is a table of
// buckets in memory outside the heap; a full bucket links to overflow buckets
// behind the table. Entries are added and changed by compare-and-swap and never
// removed.
//
// Inserting takes two steps, for two sessions may insert the same tag into
// different slots: an entry is first tentative; its inserter then looks for
// another one of the same tag, tentative or not, and if there is one withdraws
// and starts again. Both may withdraw; both cannot stay.
type index struct {
	base     unsafe.Pointer
	mask     uint64 // buckets of the table - 1
	memory   []byte
	overflow atomic.Uint64 // overflow buckets handed out
	limit    uint64        // and how many there are
}

// indexBits is the size of the table for so many records, as a power of two.
func indexBits(records int64) int {
	return max(bits.Len64(uint64(max(records/perBucket, 1)-1)), 6)
}

func newIndex(tableBits int) (*index, error) {
	buckets := uint64(1) << tableBits
	// Address space for the overflow; memory is taken where it is touched.
	memory, err := mem.Alloc(int(buckets * (1 + overflowFactor) * bucketSize))
	if err != nil {
		return nil, fmt.Errorf("kv: index of %d buckets: %w", buckets, err)
	}
	return &index{
		base:   unsafe.Pointer(unsafe.SliceData(memory)),
		mask:   buckets - 1,
		memory: memory,
		limit:  buckets * overflowFactor,
	}, nil
}

func (ix *index) free() error { return mem.Free(ix.memory) }

// bytes is the memory that the index really uses.
func (ix *index) bytes() int64 {
	return int64(ix.mask+1+min(ix.overflow.Load(), ix.limit)) * bucketSize
}

// slotAt is slot i of bucket b; i = bucketEntries is the link. Both are in
// bounds: b is masked or was handed out by grow.
func (ix *index) slotAt(b uint64, i int) slot {
	return slot{(*uint64)(unsafe.Add(ix.base, b*bucketSize+uint64(i)*8))}
}

func (ix *index) link(b uint64) *uint64 { return ix.slotAt(b, bucketEntries).p }

// prefetch asks for the bucket of a hash.
func (ix *index) prefetch(hash uint64) {
	prefetch.Line(unsafe.Add(ix.base, (hash&ix.mask)*bucketSize))
}

// find returns the entry of a hash, or 0.
func (ix *index) find(hash uint64) entry {
	want := entryUsed | tagOf(hash)
	for b := hash & ix.mask; ; {
		for i := range bucketEntries {
			if e := ix.slotAt(b, i).load(); e.matches(want) {
				return e
			}
		}
		if b = atomic.LoadUint64(ix.link(b)); b == 0 {
			return 0
		}
	}
}

// findOrInsert returns the slot of a hash and what is in it; a fresh entry has
// address 0.
func (ix *index) findOrInsert(hash uint64) (slot, entry, error) {
	want := entryUsed | tagOf(hash)
	for {
		var free slot
		var last uint64 // bucket of the list
		for b := hash & ix.mask; ; {
			for i := range bucketEntries {
				s := ix.slotAt(b, i)
				e := s.load()
				if e.matches(want) {
					return s, e, nil
				}
				if e == 0 && free.p == nil {
					free = s
				}
			}
			last = b
			if b = atomic.LoadUint64(ix.link(b)); b == 0 {
				break
			}
		}
		if free.p == nil {
			if err := ix.grow(last); err != nil {
				return slot{}, 0, err
			}
			continue
		}
		if !free.swap(0, want|entryTentative) {
			continue
		}
		if ix.duplicate(hash, want, free) {
			free.store(0)
			runtime.Gosched()
			continue
		}
		free.store(want)
		return free, want, nil
	}
}

// duplicate says whether another slot than mine has the tag, or is getting it.
func (ix *index) duplicate(hash uint64, want entry, mine slot) bool {
	for b := hash & ix.mask; ; {
		for i := range bucketEntries {
			s := ix.slotAt(b, i)
			if s != mine && (s.load() &^ entryTentative).matches(want) {
				return true
			}
		}
		if b = atomic.LoadUint64(ix.link(b)); b == 0 {
			return false
		}
	}
}

// grow links an overflow bucket to b, unless somebody else just did.
func (ix *index) grow(b uint64) error {
	n := ix.overflow.Add(1)
	if n > ix.limit {
		return fmt.Errorf("%w: %d buckets and %d overflow buckets", ErrIndexFull, ix.mask+1, ix.limit)
	}
	// A bucket that loses this race stays unused, one cache line.
	atomic.CompareAndSwapUint64(ix.link(b), 0, ix.mask+n)
	return nil
}

// replay puts a record back that recovery found at address. The newest of a
// chain wins, whatever the order.
func (ix *index) replay(hash uint64, address int64) error {
	for {
		s, e, err := ix.findOrInsert(hash)
		if err != nil || e.address() >= address || s.swap(e, e.at(address)) {
			return err
		}
	}
}
