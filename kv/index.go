package kv

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/internal/mem"
)

// ErrIndexFull says that the store holds many times the keys that its index has
// room for, and that the index does not grow: Options.FixedIndex is set, or there
// is no memory. Open the store again with a larger Options.Records.
var ErrIndexFull = errors.New("kv: index full")

// entry is one word of the index:
//
//	63         62    61..48  47..0
//	tentative  used  tag     address of the newest record
//
// The tag is some bits of the hash, so that a look at the bucket alone tells most
// other keys apart. All records whose keys share bucket and tag form one chain.
// A tentative entry is being inserted and invisible to all but other inserters.
// A tentative entry that is not used is none, but says that the index grows, see
// grow.go: the entry that was there is being moved, or has been.
type entry uint64

const (
	addressBits          = 48
	addressMask    entry = hlog.MaxAddress - 1
	entryUsed      entry = 1 << 62
	entryTentative entry = 1 << 63
	tagBits              = 14
)

// entryOf is the entry of a hash, without an address, where tags are the bits from
// shift on.
func entryOf(hash uint64, shift uint) entry {
	return entryUsed | entry(hash>>(shift&63)&(1<<tagBits-1))<<addressBits
}

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
	perBucket      = 5 // expected entries when as full as planned
	overflowFactor = 4 // overflow buckets for each bucket of the table, at most
	crowdedFactor  = 4 // one overflow bucket for so many buckets is a crowd
	minTableBits   = 12
)

// table maps hashes to the newest record of their chain: buckets in memory
// outside the heap; a full bucket links to overflow buckets behind the table.
// Entries are added and changed by compare-and-swap and never removed.
//
// The low bits of a hash choose the bucket. The tag is what came next to them
// when the table was as small as it was first: it stays where it is while the
// table grows, and hands bit by bit over to the choice of the bucket. So growing
// changes nothing about which keys share a chain, and need not look at them.
//
// Inserting takes two steps, for two sessions may insert the same tag into
// different slots: an entry is first tentative; its inserter then looks for
// another one of the same tag, tentative or not, and if there is one withdraws
// and starts again. Both may withdraw; both cannot stay.
type table struct {
	base     unsafe.Pointer
	mask     uint64 // buckets of the table - 1
	tagShift uint   // the tag is tagBits bits of the hash from here
	bits     int
	memory   []byte
	overflow atomic.Uint64 // overflow buckets handed out
	limit    uint64        // how many there are for sessions; as many again for growing

	next     atomic.Pointer[table] // where the entries are moved to, once that has begun
	crowd    func()                // called when the table is crowded, from inside an epoch; or nil
	hopeless atomic.Pointer[error] // why it will not grow
}

// tableBits is the size of the table for so many records, as a power of two.
func tableBits(records int64) int {
	return max(bits.Len64(uint64(max(records/perBucket, 1)-1)), minTableBits)
}

// IndexMemory is how many bytes of memory the index of a store takes that was opened for
// so many keys, when it has them.
func IndexMemory(records int64) int64 {
	buckets := math.Ldexp(1, tableBits(records))
	// Entries fall into buckets as Poisson says. One overflow bucket is behind each full one
	// that has more, another one behind that, and so on.
	mean := float64(max(records, 0)) / buckets
	chained, atMost, term := 0.0, 0.0, math.Exp(-mean) // term is the probability of n entries
	for n := 0; n < 16*bucketEntries; n++ {
		if atMost += term; n%bucketEntries == 0 && n > 0 {
			chained += 1 - atMost
		}
		term *= mean / float64(n+1)
	}
	return int64(math.Min(buckets*(1+chained)*bucketSize, math.MaxInt64/2))
}

// newTable makes an empty table of 1<<tableBits buckets whose tags are the bits of
// the hash from tagShift on, which is at most tableBits: tableBits itself, unless
// it is an older table that has grown. crowd may be nil: the table does not grow
// by itself.
func newTable(tableBits, tagShift int, crowd func()) (*table, error) {
	if tableBits > positionBits {
		return nil, fmt.Errorf("kv: index of %d bits, at most %d", tableBits, positionBits)
	}
	buckets := uint64(1) << tableBits
	limit := buckets * overflowFactor
	// Address space for the overflow; memory is taken where it is touched.
	memory, err := mem.Alloc(int((buckets + 2*limit) * bucketSize))
	if err != nil {
		return nil, fmt.Errorf("kv: index of %d buckets: %w", buckets, err)
	}
	return &table{
		base:     unsafe.Pointer(unsafe.SliceData(memory)),
		mask:     buckets - 1,
		tagShift: uint(tagShift),
		bits:     tableBits,
		memory:   memory,
		limit:    limit,
		crowd:    crowd,
	}, nil
}

func (t *table) free() error { return mem.Free(t.memory) }

// bytes is the memory that the table really uses.
func (t *table) bytes() int64 {
	return int64(t.buckets()) * bucketSize
}

// crowded says that more keys came than the table has good room for.
func (t *table) crowded() bool { return t.overflow.Load() > (t.mask+1)/crowdedFactor }

// wanted is the entry of a hash, without its address.
func (t *table) wanted(hash uint64) entry { return entryOf(hash, t.tagShift) }

// bucket is where bucket b starts. It is in bounds: b is masked or was handed
// out by extend.
func (t *table) bucket(b uint64) unsafe.Pointer { return unsafe.Add(t.base, b*bucketSize) }

// slotIn is slot i of a bucket; i = bucketEntries is the link.
func slotIn(bucket unsafe.Pointer, i int) slot { return slot{(*uint64)(unsafe.Add(bucket, i*8))} }

// prefetch asks for the bucket of a hash.
func (t *table) prefetch(hash uint64) { mem.Prefetch(t.bucket(hash & t.mask)) }

// find returns the slot and the entry of a hash, or an empty slot and 0.
func (t *table) find(hash uint64) (slot, entry) {
	want := t.wanted(hash) >> addressBits
	b := t.bucket(hash & t.mask)
	if i := match(b, uint64(want)); i < bucketEntries {
		s := slotIn(b, i)
		if e := s.load(); e>>addressBits == want {
			return s, e
		}
	}
	return t.findBehind(b, want)
}

// findBehind is find in the overflow buckets.
func (t *table) findBehind(b unsafe.Pointer, want entry) (slot, entry) {
	for {
		next := slotIn(b, bucketEntries).load()
		if next == 0 {
			return slot{}, 0
		}
		b = t.bucket(uint64(next))
		for i := range bucketEntries {
			s := slotIn(b, i)
			if e := s.load(); e>>addressBits == want {
				return s, e
			}
		}
	}
}

// findOrInsert returns the slot of a hash and what is in it; a fresh entry has
// address 0. An empty slot without an error: the bucket is being moved, or the
// table is full and about to grow; try again, outside the epoch.
func (t *table) findOrInsert(hash uint64) (slot, entry, error) {
	want := t.wanted(hash)
	for {
		if s, e := t.find(hash); s.p != nil {
			return s, e, nil
		}
		switch slotIn(t.bucket(hash&t.mask), 0).load() {
		case entryMoved:
			t = t.next.Load()
			continue
		case entryMoving:
			return slot{}, 0, nil
		}
		free, last := t.freeSlot(hash)
		if free.p == nil {
			if extended, err := t.extend(last); !extended {
				return slot{}, 0, err
			}
			continue
		}
		if !free.swap(0, want|entryTentative) {
			continue
		}
		if t.contested(hash, want, free) {
			free.store(0)
			runtime.Gosched()
			continue
		}
		free.store(want)
		return free, want, nil
	}
}

// freeSlot is an empty slot in the buckets of a hash, if there is one, and the last
// of these buckets.
func (t *table) freeSlot(hash uint64) (free slot, last unsafe.Pointer) {
	for b := t.bucket(hash & t.mask); ; {
		for i := range bucketEntries {
			if s := slotIn(b, i); free.p == nil && s.load() == 0 {
				free = s
			}
		}
		next := slotIn(b, bucketEntries).load()
		if next == 0 {
			return free, b
		}
		b = t.bucket(uint64(next))
	}
}

// contested says whether another slot than mine has the tag, or is getting it, or
// whether entries of the bucket are being moved, in which case nobody knows.
func (t *table) contested(hash uint64, want entry, mine slot) bool {
	for b := t.bucket(hash & t.mask); ; {
		for i := range bucketEntries {
			s := slotIn(b, i)
			if e := s.load(); s != mine && (e.gone() || (e &^ entryTentative).matches(want)) {
				return true
			}
		}
		next := slotIn(b, bucketEntries).load()
		if next == 0 {
			return false
		}
		b = t.bucket(uint64(next))
	}
}

// extend links an overflow bucket to b, unless somebody else just did. It fails
// where there is none left; then the table is about to grow, or err says why not.
func (t *table) extend(b unsafe.Pointer) (ok bool, err error) {
	n, ok := t.take(t.limit)
	if ok {
		// A bucket that loses this race stays unused, one cache line.
		slotIn(b, bucketEntries).swap(0, n)
	}
	if t.crowd == nil {
		if !ok {
			err = fmt.Errorf("%w: %d buckets and %d overflow buckets", ErrIndexFull, t.mask+1, t.limit)
		}
		return ok, err
	}
	if t.crowded() {
		t.crowd()
	}
	if why := t.hopeless.Load(); !ok && why != nil {
		err = fmt.Errorf("%w: %w", ErrIndexFull, *why)
	}
	return ok, err
}

// take hands an overflow bucket out, as a link, unless limit of them are.
func (t *table) take(limit uint64) (link entry, ok bool) {
	for {
		n := t.overflow.Load()
		if n >= limit {
			return 0, false
		}
		if t.overflow.CompareAndSwap(n, n+1) {
			return entry(t.mask + 1 + n), true
		}
	}
}
