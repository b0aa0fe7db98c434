package device

// CacheUser is a Device that keeps a cache in memory, of itself or of a device that it
// owns. A store takes that from its own memory, so that one number bounds both.
type CacheUser interface {
	// CacheMemory is the most bytes that the caches take.
	CacheMemory() int64
}

// CacheMemory is what the caches of a device take, those of its tiers included: 0 where
// there are none.
func CacheMemory(d Device) int64 {
	if u, ok := d.(CacheUser); ok {
		return u.CacheMemory()
	}
	return 0
}

// CacheMemory implements CacheUser.
func (t *Tiered) CacheMemory() (sum int64) {
	for _, tr := range t.tiers {
		sum += CacheMemory(tr.dev)
	}
	return sum
}

// CacheMemory implements CacheUser.
func (f *Faulty) CacheMemory() int64 { return CacheMemory(f.inner) }
