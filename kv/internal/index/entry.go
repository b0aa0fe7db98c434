package index

import (
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/hlog"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// Entry is one word of a bucket:
//
//	63         62    61..48  47..0
//	tentative  used  tag     address of the newest record
//
// The tag is some bits of the hash: it distinguishes most other keys of the bucket without a look
// at their records. A tentative entry is being inserted; only other inserters see it. A
// tentative entry that is not used marks a place whose entry is being moved, or has been.
type Entry uint64

const (
	// AddressBits is the number of bits of an address; above them an entry has its tag.
	AddressBits = 48
	// TagBits is the number of bits of a tag.
	TagBits = manifest.TagBits

	// Used is set in every entry, so that no entry is 0.
	Used Entry = 1 << 62
	// Tentative is set in an entry that is being inserted.
	Tentative Entry = 1 << 63

	addressMask Entry = hlog.MaxAddress - 1

	// moving and moved stand in place of entries while a table grows.
	moving = Tentative
	moved  = Tentative | 1
)

// Neither moving nor moved leads to a record, even where their upper bits are ignored.
const _ = uint64(hlog.FirstAddress - 1 - moved&addressMask)

// EntryOf returns the entry of a hash, without an address. The tag begins at bit shift of
// the hash.
func EntryOf(hash uint64, shift uint) Entry {
	return Used | Entry(hash>>(shift&63)&(1<<TagBits-1))<<AddressBits
}

// Address returns the address of the newest record of the chain; 0: there is none yet.
func (e Entry) Address() int64 { return int64(e & addressMask) }

// WithAddress returns e with another address.
func (e Entry) WithAddress(address int64) Entry { return e&^addressMask | Entry(address) }

// Moved reports whether e stands in place of an entry that is being moved, or has been.
func (e Entry) Moved() bool { return e>>62 == Tentative>>62 }

func (e Entry) matches(want Entry) bool { return e>>AddressBits == want>>AddressBits }

// Place is where an entry is stored: a word of a bucket. The zero Place is none.
type Place struct{ p *uint64 }

// None reports whether p is the zero Place.
func (p Place) None() bool { return p.p == nil }

// Load returns the entry.
func (p Place) Load() Entry { return Entry(atomic.LoadUint64(p.p)) }

// Store replaces the entry.
func (p Place) Store(e Entry) { atomic.StoreUint64(p.p, uint64(e)) }

// CompareAndSwap replaces the entry if it is still old.
func (p Place) CompareAndSwap(old, new Entry) bool {
	return atomic.CompareAndSwapUint64(p.p, uint64(old), uint64(new))
}

const (
	// BucketSize is the size of a bucket in bytes: a cache line.
	BucketSize = 64
	// BucketEntries is the number of entries in a bucket. The word behind them is the
	// link: the number of the overflow bucket, or 0.
	BucketEntries = 7
)

// placeIn returns place i of a bucket; i = BucketEntries is the link.
func placeIn(bucket unsafe.Pointer, i int) Place { return Place{(*uint64)(unsafe.Add(bucket, i*8))} }
