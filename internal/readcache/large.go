package readcache

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
)

// large holds the large records in a ristretto cache. Its entries are slices of
// the Go heap, few enough for the collector not to mind.
type large struct {
	used atomic.Bool // something was added since the last resize

	mu     sync.RWMutex // ristretto must not be closed while it is in use
	cache  *ristretto.Cache[uint64, []byte]
	ghosts []uint64

	// Since the last resize; left also counts those that ristretto refused.
	added, declined, dropped, left atomic.Uint64
}

// largeOverhead is what an entry takes beside its record: the map's word, the
// policy's, and the share of a size class that is not used.
const largeOverhead = 256

func newRistretto(l *large, budget int64, threshold int) (*ristretto.Cache[uint64, []byte], error) {
	entries := max(budget/int64(threshold), 16)
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, []byte]{
		NumCounters:        entries * 10,
		MaxCost:            max(budget-entries*60, 1), // 3 bytes a counter, rounded up
		BufferItems:        64,
		IgnoreInternalCost: true,
		// Both words: the first spreads, the second makes the match exact.
		KeyToHash: func(addr uint64) (uint64, uint64) { return mix(int64(addr)), addr },
		OnExit: func(record []byte) {
			if record != nil {
				l.left.Add(1)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("ristretto cache of %d bytes: %w", budget, err)
	}
	return cache, nil
}

// resize drops everything: it is for budgets that change seldom.
func (l *large) resize(budget int64, threshold int) error {
	var next *ristretto.Cache[uint64, []byte]
	if budget >= int64(threshold) {
		var err error
		if next, err = newRistretto(l, budget, threshold); err != nil {
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
	left := l.left.Load() // first: whatever left was added before
	added := l.added.Load()
	m.Added += added
	m.Evicted += left
	m.Dropped += l.dropped.Load()
	m.Entries += int64(max(added, left) - left)
	m.Bytes += l.cache.MaxCost() - l.cache.RemainingCost()
}

// free drops everything for good.
func (l *large) free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cache.Close()
	l.cache = nil
	l.used.Store(false)
}
