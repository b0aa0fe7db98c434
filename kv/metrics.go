package kv

// MaxTiers is how many tiers of a device Metrics tells apart.
const MaxTiers = 4

// Metrics is what a store has done and what it uses. The counts are sums over
// all sessions, open and closed; they are read while operations go on and are
// not a snapshot of one moment.
type Metrics struct {
	// Operations completed.
	Reads, Upserts, RMWs, Deletes uint64
	// Where reads found their answer: without the device, or with the last
	// fetch from that tier of the device (0 where the device is not tiered).
	ReadsMemory uint64
	ReadsTier   [MaxTiers]uint64
	// Records fetched from the device, for all operations.
	DeviceReads uint64

	// The log: bytes below Head are on the device only, those from ReadOnly on
	// are updated in place.
	Begin, Head, ReadOnly, Tail int64
	// MemoryBytes of log are resident, of at most MemoryBudget; the index takes
	// IndexBytes beside them.
	MemoryBytes, MemoryBudget, IndexBytes int64
}
