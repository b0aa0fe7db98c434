package readcache

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
)

// large holds the large records in a ristretto cache. The entries are slices on the Go heap,
// too few to burden the collector.
type large struct {
	used atomic.Bool // a record was added since the last resize

	mu     sync.RWMutex // guards ristretto against Close while it is in use
	cache  *ristretto.Cache[uint64, []byte]
	ghosts []uint64

	// Counts since the last resize. left includes records that ristretto refused.
	added, declined, dropped, left atomic.Uint64
}

// largeOverhead is the memory of an entry beside its record: the map's word, the policy's, and
// the unused part of the size class.
const largeOverhead = 256

// resize drops all records, so budgets should change rarely.
func (l *large) resize(budget int64, threshold int) error {
	var next *ristretto.Cache[uint64, []byte]
	if budget >= int64(threshold) {
		var err error
		entries := max(budget/int64(threshold), 16)
		counters := entries * 60 // bytes: 10 counters per entry at 3 bytes each, rounded up
		if next, err = NewRistretto(entries, max(budget-counters, 1), l.exited); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cache.Close()
	l.cache = next
	for _, count := range []*atomic.Uint64{&l.added, &l.declined, &l.dropped, &l.left} {
		count.Store(0)
	}
	l.used.Store(false)
	l.ghosts = make([]uint64, max(budget/int64(threshold)/4, 1))
	return nil
}

// exited is called by ristretto with a record that it evicts or refuses, or nil.
func (l *large) exited(record []byte) {
	if record != nil {
		l.left.Add(1)
	}
}

func (l *large) get(dst []byte, addr int64) ([]byte, bool) {
	if !l.used.Load() {
		return dst, false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	record, ok := l.cache.Get(uint64(addr))
	if !ok {
		return dst, false
	}
	return append(dst, record...), true
}

func (l *large) add(addr int64, record []byte) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	cost := int64(len(record)) + largeOverhead
	if l.cache == nil || cost > l.cache.MaxCost()/8 {
		l.declined.Add(1)
		return
	}
	hash := mix(addr)
	if l.cache.RemainingCost() < cost && !seen(&l.ghosts[choose(hash, uint64(len(l.ghosts)))], hash) {
		l.declined.Add(1)
		return
	}
	if !l.cache.Set(uint64(addr), slices.Clone(record), cost) {
		l.dropped.Add(1)
		return
	}
	l.added.Add(1)
	l.used.Store(true)
}

func (l *large) addTo(m *Metrics) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	m.Declined += l.declined.Load()
	if l.cache == nil {
		return
	}
	left := l.left.Load() // before added: what left was added earlier
	added := l.added.Load()
	m.Added += added
	m.Evicted += left
	m.Dropped += l.dropped.Load()
	m.Entries += int64(max(added, left) - left)
	m.Bytes += l.cache.MaxCost() - l.cache.RemainingCost()
}

// free drops all records for good.
func (l *large) free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cache.Close()
	l.cache = nil
	l.used.Store(false)
}
