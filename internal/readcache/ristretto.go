package readcache

import (
	"fmt"

	"github.com/dgraph-io/ristretto/v2"
)

// NewRistretto returns a ristretto cache of byte slices by number, for about that many
// entries. The cost of an entry is its memory in bytes, and cost is the limit. onExit, which
// may be nil, is called with slices that the cache drops.
func NewRistretto(entries, cost int64, onExit func([]byte)) (*ristretto.Cache[uint64, []byte], error) {
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, []byte]{
		NumCounters:        entries * 10,
		MaxCost:            cost,
		BufferItems:        64,
		IgnoreInternalCost: true,
		// The first word spreads keys, the second makes the match exact.
		KeyToHash: func(key uint64) (uint64, uint64) { return mix(int64(key)), key },
		OnExit:    onExit,
	})
	if err != nil {
		return nil, fmt.Errorf("ristretto cache of %d bytes: %w", cost, err)
	}
	return cache, nil
}
