package device

// CacheUser is a Device that has a cache in memory, or owns a device that has one. A store
// subtracts the cache from its own memory, so that one number bounds both.
type CacheUser interface {
	// CacheMemory is the largest number of bytes that the caches take.
	CacheMemory() int64
}

// CacheMemory is the memory of the caches of a device and of its tiers, in bytes.
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
