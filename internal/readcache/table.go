package readcache

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/redykv/redykv/internal/mem"
)

// table holds the small records. It consists of shards, each with a separate part of
// memory outside the heap:
//
//	buckets, 64 bytes: 7 entries │ ghosts     ring of records, each after its note
//
// The entries of a bucket point into the ring. Records that the ring's tail reaches are
// evicted, or written again at the tail if they were read since they were written.
//
// Readers take no lock. They copy the record that an entry points to and then load the
// shard's head. The head only grows, and moves before the bytes below it are overwritten,
// so a copy from a place that is not below head afterwards is whole. The note holds the
// full address. Writers hold the shard's lock; if it is taken, they drop their record.
//
// The memory is unmapped when the collector finds the table unreachable: a reader keeps
// it alive by its pointer, at no cost. retire releases the physical memory earlier.
type table struct {
	base       unsafe.Pointer
	shards     []shard
	shardMask  uint64
	shardBytes uint64 // bytes of memory per shard

	buckets   uint64 // per shard
	ringAt    uint64 // offset in a shard's memory
	ringWords uint64
	wordBits  uint // a place is a lap, followed by this many bits for a word in the ring

	recordSize int // size of records that the layout is made for
	maxRecord  int
	memory     []byte
}

const (
	maxShards = 64
	// shardsBegin is the memory per shard, up to maxShards shards.
	shardsBegin = 1 << 20
	// perBucket is the expected number of used entries, of seven. A bucket that overflows
	// loses its oldest record; at this number 4 % of them do.
	perBucket     = 4.7
	perBucketFull = 5 // mean number of used entries from which the table is full
)

func newTable(capacity int64, recordSize, threshold int) (*table, error) {
	shards := int64(1)
	for shards < maxShards && shards*2*shardsBegin <= capacity {
		shards *= 2
	}
	bytes := uint64(capacity/shards-int64(unsafe.Sizeof(shard{}))) &^ 7
	if bytes > 4096 {
		bytes &^= 4095 // whole pages, so that shards can be released one by one
	}
	record := float64(newNote(0, min(max(recordSize, 1), threshold)).words() * 8)
	records := float64(bytes) / (record + bucketSize/perBucket)
	t := &table{
		shards:     make([]shard, shards),
		shardMask:  uint64(shards - 1),
		shardBytes: bytes,
		buckets:    uint64(records/perBucket) + 1,
		recordSize: recordSize,
	}
	t.ringAt = t.buckets * bucketSize
	t.ringWords = (bytes - t.ringAt) / 8
	t.wordBits = uint(bits.Len64(t.ringWords - 1))
	t.maxRecord = min(threshold, int(t.ringWords)*2) // bytes: a quarter of the ring
	var err error
	if t.memory, err = mem.Alloc(int(bytes) * int(shards)); err != nil {
		return nil, fmt.Errorf("table of %d shards: %w", shards, err)
	}
	t.base = unsafe.Pointer(unsafe.SliceData(t.memory))
	runtime.AddCleanup(t, func(memory []byte) {
		// Free cannot fail with memory that mem.Alloc returned.
		_ = mem.Free(memory)
	}, t.memory)
	for i := range t.shards {
		s := &t.shards[i]
		s.base = unsafe.Add(t.base, uint64(i)*bytes)
		s.tail = t.firstPlace()
		s.head.Store(uint64(s.tail))
	}
	return t, nil
}

// firstPlace is the first place of every ring. Places are never 0.
func (t *table) firstPlace() place { return 1 << t.wordBits }

// split returns the lap of a place and its word in the ring. The word of a place that was
// written is below ringWords.
func (t *table) split(p place) (lap, word uint64) {
	return uint64(p) >> t.wordBits, uint64(p) & (1<<t.wordBits - 1)
}

// after returns the place that many words behind p. It is not beyond the ring's end.
func (t *table) after(p place, words uint64) place {
	if lap, word := t.split(p); word+words >= t.ringWords {
		return place((lap + 1) << t.wordBits)
	}
	return p + place(words)
}

// shardOf and bucketOf are within bounds for any hash.
func (t *table) shardOf(hash uint64) *shard { return &t.shards[hash&t.shardMask] }

func (t *table) bucketOf(s *shard, hash uint64) unsafe.Pointer {
	return unsafe.Add(s.base, choose(hash, t.buckets)*bucketSize)
}

// wordAt returns the address of a word in the ring.
func (t *table) wordAt(s *shard, word uint64) *uint64 {
	return (*uint64)(unsafe.Add(s.base, t.ringAt+word*8))
}

func entryAt(bucket unsafe.Pointer, i int) *uint64 {
	return (*uint64)(unsafe.Add(bucket, i*8))
}

func ghostsOf(bucket unsafe.Pointer) *uint64 { return entryAt(bucket, bucketEntries) }

func (t *table) prefetch(addr int64) {
	hash := mix(addr)
	mem.Prefetch(t.bucketOf(t.shardOf(hash), hash))
}

// prefetchRecord implements [Cache.PrefetchRecord].
func (t *table) prefetchRecord(addr int64) {
	hash := mix(addr)
	s := t.shardOf(hash)
	bucket, want := t.bucketOf(s, hash), newEntry(hash)
	for i := range bucketEntries {
		if e := entry(atomic.LoadUint64(entryAt(bucket, i))); e.matches(want) {
			_, word := t.split(e.place())
			at := unsafe.Pointer(t.wordAt(s, word))
			mem.Prefetch(at)
			mem.Prefetch(unsafe.Add(at, 64))
		}
	}
}

// get implements [Cache.Get].
func (t *table) get(dst []byte, addr int64) ([]byte, bool) {
	hash := mix(addr)
	s := t.shardOf(hash)
	bucket, want := t.bucketOf(s, hash), newEntry(hash)
	for i := range bucketEntries {
		e := entry(atomic.LoadUint64(entryAt(bucket, i)))
		if !e.matches(want) {
			continue
		}
		_, word := t.split(e.place())
		n := note(atomic.LoadUint64(t.wordAt(s, word)))
		if n.address() != addr || word+n.words() > t.ringWords {
			continue // another address with this tag, or overwritten
		}
		out := mem.AppendOut(dst, unsafe.Pointer(t.wordAt(s, word+1)), n.length())
		mem.LoadFence()
		if e.place() < place(s.head.Load()) {
			return dst, false
		}
		if !e.referenced() {
			// If this fails the entry has changed. The copy is valid nevertheless.
			atomic.CompareAndSwapUint64(entryAt(bucket, i), uint64(e), uint64(e|entryReferenced))
		}
		return out, true
	}
	return dst, false
}

// add implements [Cache.Add] for a record that is not too large. When a shard first becomes
// full, misfit reports whether the mean size of records is far from the layout's.
func (t *table) add(addr int64, record []byte) (mean int, misfit bool) {
	hash := mix(addr)
	s := t.shardOf(hash)
	full := s.full.Load()
	if full && !seen(ghostsOf(t.bucketOf(s, hash)), hash) {
		s.declined.Add(1)
		return 0, false
	}
	if !s.mu.TryLock() {
		s.dropped.Add(1)
		return 0, false
	}
	defer s.mu.Unlock()
	if s.retired {
		return 0, false
	}
	t.insert(s, addr, record)
	if full || !s.full.Load() {
		return 0, false
	}
	mean = int(s.bytes / max(s.entries, 1))
	return mean, mean > t.recordSize+t.recordSize/2 || t.recordSize > mean+mean/2
}

// retire moves t's records to next and releases t's memory. New readers cannot reach t any
// more, but earlier ones may still use it. t and next may be nil.
func (t *table) retire(next *table) error {
	if t == nil {
		return nil
	}
	var errs []error
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		if next != nil {
			t.moveTo(next, s)
		}
		s.retired = true
		s.head.Store(uint64(placeMask)) // invalidates the copies of concurrent readers
		mem.StoreFence()
		if t.shardBytes%4096 == 0 {
			errs = append(errs, discard(unsafe.Slice((*byte)(s.base), t.shardBytes)))
		}
		s.mu.Unlock()
	}
	runtime.KeepAlive(t)
	return errors.Join(errs...)
}

// moveTo adds the records of a shard to next, oldest first.
func (t *table) moveTo(next *table, s *shard) {
	for p := place(s.head.Load()); p != s.tail; {
		_, word := t.split(p)
		n := note(atomic.LoadUint64(t.wordAt(s, word)))
		if n.address() == 0 {
			p = t.after(p, t.ringWords)
			continue
		}
		if cell := t.entryOf(s, n.address(), p); cell != nil && n.length() <= next.maxRecord {
			s.scratch = mem.AppendOut(s.scratch[:0], unsafe.Pointer(t.wordAt(s, word+1)), n.length())
			to := next.shardOf(mix(n.address()))
			to.mu.Lock()
			next.insert(to, n.address(), s.scratch)
			to.mu.Unlock()
		}
		p = t.after(p, n.words())
	}
}

func (t *table) addTo(m *Metrics) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		m.Bytes += s.bytes
		m.Entries += s.entries
		m.Added += s.added
		m.Evicted += s.evicted
		s.mu.Unlock()
		m.Declined += s.declined.Load()
		m.Dropped += s.dropped.Load()
	}
}
