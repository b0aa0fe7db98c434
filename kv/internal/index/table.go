package index

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

// ErrFull means that the table has no overflow bucket left and does not grow.
var ErrFull = errors.New("kv: index full")

const (
	// PerBucket is the expected number of entries in a bucket of a table that holds the
	// records that it was made for.
	PerBucket = 5
	// MinBits is the binary logarithm of the buckets of the smallest table.
	MinBits = 12

	overflowFactor = 4 // overflow buckets per bucket of the table, at most
	crowdedFactor  = 4 // a table with one overflow bucket per so many buckets is crowded
)

// Table maps hashes to the newest records of their chains: see the package's documentation.
type Table struct {
	base     unsafe.Pointer
	mask     uint64 // buckets of the table - 1, without overflow buckets
	tagShift uint   // the tag is TagBits bits of the hash from this one on
	bits     int    // binary logarithm of the buckets
	memory   []byte
	overflow atomic.Uint64 // overflow buckets handed out
	limit    uint64        // overflow buckets for sessions; the mover has as many again

	next       atomic.Pointer[Table] // the table that the entries are moved to; nil: it does not grow
	onCrowded  func()                // called inside an epoch when the table is crowded; nil: it does not grow by itself
	cannotGrow atomic.Pointer[error] // why not; nil: it can
}

// Bits returns the binary logarithm of the buckets of a table for so many records.
func Bits(records int64) int {
	return max(bits.Len64(uint64(max(records/PerBucket, 1)-1)), MinBits)
}

// Memory returns how many bytes a table made for so many records takes when it holds them.
func Memory(records int64) int64 {
	buckets := math.Ldexp(1, Bits(records))
	// The number of entries of a bucket has a Poisson distribution. A bucket with more
	// than BucketEntries has an overflow bucket, one with more than twice as many has two,
	// and so on.
	mean := float64(max(records, 0)) / buckets
	overflow, atMost, term := 0.0, 0.0, math.Exp(-mean) // term is the probability of n entries
	for n := 0; n < 16*BucketEntries; n++ {
		if atMost += term; n%BucketEntries == 0 && n > 0 {
			overflow += 1 - atMost
		}
		term *= mean / float64(n+1)
	}
	return int64(math.Min(buckets*(1+overflow)*BucketSize, math.MaxInt64/2))
}

// New makes an empty table of 1<<tableBits buckets whose tags begin at bit tagShift of
// the hash: at bit tableBits, unless the table continues a smaller one. onCrowded is
// called when the table is crowded; if it is nil, the table does not grow by itself.
func New(tableBits, tagShift int, onCrowded func()) (*Table, error) {
	if tableBits > PositionBits {
		return nil, fmt.Errorf("kv: index of %d bits, at most %d", tableBits, PositionBits)
	}
	buckets := uint64(1) << tableBits
	limit := buckets * overflowFactor
	// Only address space is taken for overflow buckets; memory follows when they are used.
	memory, err := mem.Alloc(int((buckets + 2*limit) * BucketSize))
	if err != nil {
		return nil, fmt.Errorf("kv: index of %d buckets: %w", buckets, err)
	}
	return &Table{
		base:      unsafe.Pointer(unsafe.SliceData(memory)),
		mask:      buckets - 1,
		tagShift:  uint(tagShift),
		bits:      tableBits,
		memory:    memory,
		limit:     limit,
		onCrowded: onCrowded,
	}, nil
}

// Free frees the table's memory. No session may use the table any more.
func (t *Table) Free() error { return mem.Free(t.memory) }

// Base returns the address of the first bucket.
func (t *Table) Base() unsafe.Pointer { return t.base }

// Mask returns the number of buckets - 1, without overflow buckets.
func (t *Table) Mask() uint64 { return t.mask }

// Bits returns the binary logarithm of the number of buckets.
func (t *Table) Bits() int { return t.bits }

// TagShift returns the bit of the hash at which the tag begins.
func (t *Table) TagShift() uint { return t.tagShift }

// Overflow returns how many overflow buckets are in use.
func (t *Table) Overflow() uint64 { return t.overflow.Load() }

// Bytes returns the memory in use.
func (t *Table) Bytes() int64 { return int64(t.allBuckets()) * BucketSize }

// allBuckets returns the number of buckets, those for overflow that are in use included.
func (t *Table) allBuckets() uint64 { return t.mask + 1 + min(t.overflow.Load(), 2*t.limit) }

// Crowded reports whether the table holds many more keys than it was made for.
func (t *Table) Crowded() bool { return t.overflow.Load() > (t.mask+1)/crowdedFactor }

// ShouldGrow reports whether a table that grows by itself is crowded and can grow.
func (t *Table) ShouldGrow() bool {
	return t.onCrowded != nil && t.Crowded() && t.cannotGrow.Load() == nil
}

// CannotGrow notes why the table will not grow, and reports whether that is news.
func (t *Table) CannotGrow(why error) bool { return t.cannotGrow.Swap(&why) == nil }

// wanted returns the entry of a hash, without its address.
func (t *Table) wanted(hash uint64) Entry { return EntryOf(hash, t.tagShift) }

// bucket returns where bucket b starts. It is in bounds: b is masked, or was handed out
// by takeOverflow.
func (t *Table) bucket(b uint64) unsafe.Pointer { return unsafe.Add(t.base, b*BucketSize) }

// Prefetch prefetches the bucket of a hash.
func (t *Table) Prefetch(hash uint64) { mem.Prefetch(t.bucket(hash & t.mask)) }

// PrefetchBehind prefetches where the entry of a hash may be that its first bucket does
// not have: the first overflow bucket, and the bucket in the new table while this one
// grows. It returns false if there is neither.
func (t *Table) PrefetchBehind(hash uint64) bool {
	link, next := placeIn(t.bucket(hash&t.mask), BucketEntries).Load(), t.next.Load()
	if link != 0 {
		mem.Prefetch(t.bucket(uint64(link)))
	}
	if next != nil {
		next.Prefetch(hash)
	}
	return link != 0 || next != nil
}

// Find returns the place and the entry of a hash, or none and 0. It does not look into
// the new table of a table that grows: see Locate.
func (t *Table) Find(hash uint64) (Place, Entry) {
	want := t.wanted(hash) >> AddressBits
	b := t.bucket(hash & t.mask)
	if i := match(b, uint64(want)); i < BucketEntries {
		p := placeIn(b, i)
		if e := p.Load(); e>>AddressBits == want {
			return p, e
		}
	}
	return t.findBehind(b, want)
}

// behind returns the overflow bucket that b links to, or nil.
func (t *Table) behind(b unsafe.Pointer) unsafe.Pointer {
	if link := placeIn(b, BucketEntries).Load(); link != 0 {
		return t.bucket(uint64(link))
	}
	return nil
}

// matchWords is the portable form of match.
func matchWords(bucket unsafe.Pointer, want uint64) int {
	for i := range BucketEntries {
		if uint64(placeIn(bucket, i).Load()>>AddressBits) == want {
			return i
		}
	}
	return BucketEntries
}

// FindIn returns the place in a bucket of an entry with the tag of want, or none. It is
// portable and slower than Find.
func FindIn(bucket unsafe.Pointer, want Entry) Place {
	if i := matchWords(bucket, uint64(want>>AddressBits)); i < BucketEntries {
		return placeIn(bucket, i)
	}
	return Place{}
}

// findBehind is Find in the overflow buckets.
func (t *Table) findBehind(b unsafe.Pointer, want Entry) (Place, Entry) {
	for {
		next := placeIn(b, BucketEntries).Load()
		if next == 0 {
			return Place{}, 0
		}
		b = t.bucket(uint64(next))
		for i := range BucketEntries {
			p := placeIn(b, i)
			if e := p.Load(); e>>AddressBits == want {
				return p, e
			}
		}
	}
}

// Locate is Find in a table that may be growing. busy means that the bucket is being
// moved, which takes microseconds; then a missing place means nothing.
func (t *Table) Locate(hash uint64) (p Place, e Entry, busy bool) {
	if p, e = t.Find(hash); p.p != nil {
		return p, e, false
	}
	switch placeIn(t.bucket(hash&t.mask), 0).Load() {
	case moved:
		p, e = t.next.Load().Find(hash) // it does not grow before all sessions have left this epoch
	case moving:
		busy = true
	}
	return p, e, busy
}

// FindOrInsert returns the place of a hash and its entry, whose address is 0 if it is
// new. No place and no error means that the bucket is being moved, or that the table is
// full and about to grow: try again, outside the epoch.
func (t *Table) FindOrInsert(hash uint64) (Place, Entry, error) {
	want := t.wanted(hash)
	for {
		if p, e := t.Find(hash); p.p != nil {
			return p, e, nil
		}
		switch placeIn(t.bucket(hash&t.mask), 0).Load() {
		case moved:
			t = t.next.Load()
			continue
		case moving:
			return Place{}, 0, nil
		}
		free, last := t.freePlace(hash)
		if free.p == nil {
			if extended, err := t.extend(last); !extended {
				return Place{}, 0, err
			}
			continue
		}
		if !free.CompareAndSwap(0, want|Tentative) {
			continue
		}
		if t.contested(hash, want, free) {
			free.Store(0)
			runtime.Gosched()
			continue
		}
		free.Store(want)
		return free, want, nil
	}
}

// freePlace returns an empty place in the buckets of a hash, if there is one, and the
// last of these buckets.
func (t *Table) freePlace(hash uint64) (free Place, last unsafe.Pointer) {
	for b := t.bucket(hash & t.mask); b != nil; b = t.behind(b) {
		last = b
		for i := range BucketEntries {
			if p := placeIn(b, i); free.p == nil && p.Load() == 0 {
				free = p
			}
		}
	}
	return free, last
}

// contested reports whether another place than mine has the tag, tentatively or not, or
// whether entries of the bucket are being moved, which may hide one.
func (t *Table) contested(hash uint64, want Entry, mine Place) bool {
	for b := t.bucket(hash & t.mask); b != nil; b = t.behind(b) {
		for i := range BucketEntries {
			p := placeIn(b, i)
			if e := p.Load(); p != mine && (e.Moved() || (e &^ Tentative).matches(want)) {
				return true
			}
		}
	}
	return false
}

// extend links an overflow bucket to b, unless another session has just done so. It fails
// if none is left; then the table is about to grow, or err is the reason why not.
func (t *Table) extend(b unsafe.Pointer) (ok bool, err error) {
	link, ok := t.takeOverflow(t.limit)
	if ok {
		// A bucket that loses this race stays unused: one cache line.
		placeIn(b, BucketEntries).CompareAndSwap(0, link)
	}
	if t.onCrowded == nil {
		if !ok {
			err = fmt.Errorf("%w: %d buckets and %d overflow buckets", ErrFull, t.mask+1, t.limit)
		}
		return ok, err
	}
	if t.Crowded() {
		t.onCrowded()
	}
	if why := t.cannotGrow.Load(); !ok && why != nil {
		err = fmt.Errorf("%w: %w", ErrFull, *why)
	}
	return ok, err
}

// takeOverflow takes an overflow bucket and returns the link to it, unless limit of them
// are taken.
func (t *Table) takeOverflow(limit uint64) (link Entry, ok bool) {
	for {
		n := t.overflow.Load()
		if n >= limit {
			return 0, false
		}
		if t.overflow.CompareAndSwap(n, n+1) {
			return Entry(t.mask + 1 + n), true
		}
	}
}

// EntriesFrom calls visit for the address of every entry at or above lowest, until visit
// returns false, which it then returns.
func (t *Table) EntriesFrom(lowest int64, visit func(address int64) bool) bool {
	return t.entriesIn(0, t.allBuckets(), lowest, visit)
}

// AllFrom reports whether something holds for the address of every entry at or above lowest. It
// asks from several goroutines.
func (t *Table) AllFrom(lowest int64, holds func(address int64) bool) bool {
	errNot := errors.New("it does not hold")
	return inParts(t.allBuckets(), func(from, to uint64) error {
		if !t.entriesIn(from, to, lowest, holds) {
			return errNot
		}
		return nil
	}) == nil
}

func (t *Table) entriesIn(from, to uint64, lowest int64, visit func(address int64) bool) bool {
	for b := from; b < to; b++ {
		for i := range BucketEntries {
			if e := placeIn(t.bucket(b), i).Load(); e.Address() >= lowest && !visit(e.Address()) {
				return false
			}
		}
	}
	return true
}

// Visit calls visit for the entries of a bucket. The hash of every key of an entry's chain
// that belongs there has the bits class under mask; older records may have other hashes,
// from an index with fewer buckets. Visit returns false if the bucket is being moved; then
// entries are missing.
func (t *Table) Visit(bucket uint64, visit func(address int64, mask, class uint64)) (whole bool) {
	if placeIn(t.bucket(bucket), 0).Load() == moved {
		next := t.next.Load() // it does not grow before all sessions have left this epoch
		return next.Visit(bucket, visit) && next.Visit(bucket+t.mask+1, visit)
	}
	for b := t.bucket(bucket); b != nil; b = t.behind(b) {
		for i := range BucketEntries {
			e := placeIn(b, i).Load()
			if e.Moved() {
				return false
			}
			if e&Tentative == 0 && e&Used != 0 {
				tag := uint64(e>>AddressBits) & (1<<TagBits - 1)
				visit(e.Address(), t.mask|(1<<TagBits-1)<<t.tagShift, bucket|tag<<t.tagShift)
			}
		}
	}
	return true
}

// loadSample is how many buckets LoadFactor looks at.
const loadSample = 512

// LoadFactor estimates the number of entries as a fraction of the places in the table.
func (t *Table) LoadFactor() float64 {
	n := min(t.mask+1, loadSample)
	entries := 0
	for i := range n {
		entries += t.entriesAt(i * ((t.mask + 1) / n))
	}
	return float64(entries) / float64(n*BucketEntries)
}

// entriesAt counts the entries of a bucket and its overflow buckets, in the new table if
// they were moved there.
func (t *Table) entriesAt(b uint64) (n int) {
	if next := t.next.Load(); next != nil && placeIn(t.bucket(b), 0).Load() == moved {
		return next.entriesAt(b) + next.entriesAt(b+t.mask+1)
	}
	for at := t.bucket(b); at != nil; at = t.behind(at) {
		for i := range BucketEntries {
			if placeIn(at, i).Load()&Used != 0 {
				n++
			}
		}
	}
	return n
}
