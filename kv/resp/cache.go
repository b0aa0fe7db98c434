package resp

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"github.com/redykv/redykv/kv"
)

// CacheMode makes a server a cache: the store evicts the keys that were not used lately. Its Eviction is
// an option of the store, and itself one of the server.
//
// It counts the uses of keys, up to three, in two bits for a hash of the key. When the store is about to
// evict a key, the count says whether it gets another chance, which costs it one use. A key that is
// written for the first time has no uses, so keys that are read once by a scan go first.
type CacheMode struct {
	max    int64
	seed   maphash.Seed
	uses   []atomic.Uint64 // 32 counts each
	server atomic.Pointer[Server]
}

// The number of counts for each expected key, and its limits.
const (
	countsPerKey = 4
	leastCounts  = 1 << 16
	mostCounts   = 1 << 34

	countBits     = 2
	countsPerWord = 64 / countBits
	mostUses      = 1<<countBits - 1
)

// NewCacheMode returns the cache mode of a store whose log has at most max bytes, with about so many
// keys.
func NewCacheMode(max, keys int64) *CacheMode {
	n := int64(leastCounts)
	for n < mostCounts && n < keys*countsPerKey {
		n *= 2
	}
	return &CacheMode{max: max, seed: maphash.MakeSeed(), uses: make([]atomic.Uint64, n/countsPerWord)}
}

// Eviction returns the store's option.
func (c *CacheMode) Eviction() kv.Eviction {
	return kv.Eviction{MaxLog: c.max, Recent: c.spend, Evicted: c.evicted}
}

// place returns the word of a key's count, and the count's position in it.
func (c *CacheMode) place(key []byte) (word *atomic.Uint64, shift uint) {
	h := maphash.Bytes(c.seed, key)
	at, _ := bits.Mul64(h, uint64(len(c.uses)))
	return &c.uses[at], uint(h%countsPerWord) * countBits
}

// use counts a use of a record's key.
func (c *CacheMode) use(key []byte) {
	word, shift := c.place(key)
	if old := word.Load(); old>>shift&mostUses < mostUses {
		word.CompareAndSwap(old, old+1<<shift) // a use that is lost in a race does not matter
	}
}

// spend takes a use away, and reports whether there was one.
func (c *CacheMode) spend(key []byte) bool {
	word, shift := c.place(key)
	for {
		old := word.Load()
		if old>>shift&mostUses == 0 {
			return false
		}
		if word.CompareAndSwap(old, old-1<<shift) {
			return true
		}
	}
}

// evicted tells that a record's key was evicted.
func (c *CacheMode) evicted(key []byte) {
	s := c.server.Load()
	if s == nil { // it is not made yet
		return
	}
	s.watches.changed(key)
	if s.changes.wants(classEvicted) {
		s.notify("evicted", key, nil)
	}
	if s.changes.tracked.Load() > 0 {
		_, shown := shownKey(key)
		s.tracking.invalidate([][]byte{shown}, nil)
	}
}

// noteUses counts the uses of keys by a batch that has run.
func (c *CacheMode) noteUses(w *worker) {
	for i := range w.ops {
		switch op := &w.ops[i]; {
		case op.Err != nil:
		case op.Kind == kv.OpRead, op.Kind == kv.OpRMW && w.mods[i].found && w.mods[i].verdict != kv.Remove:
			c.use(op.Key)
		}
	}
}

// noteReads counts the uses of keys that were read for a command that opens collections.
func (c *CacheMode) noteReads(reads []kv.Op) {
	for i := range reads {
		if reads[i].Err == nil {
			c.use(reads[i].Key)
		}
	}
}

// settings returns the settings about the size of a cache.
func (c *CacheMode) settings() []Setting {
	if c == nil {
		return []Setting{{Name: "maxmemory-policy", Get: func() string { return noEviction }}}
	}
	return []Setting{
		{Name: "maxmemory", Get: func() string { return fmt.Sprint(c.max) }},
		{Name: "maxmemory-policy", Get: func() string { return c.policy() }},
	}
}

// maxMemory returns the most bytes of the log, or 0.
func (c *CacheMode) maxMemory() int64 {
	if c == nil {
		return 0
	}
	return c.max
}

const noEviction = "noeviction"

// policy returns the policy of Redis that is most like the server's.
func (c *CacheMode) policy() string {
	if c == nil {
		return noEviction
	}
	return "allkeys-lru"
}
