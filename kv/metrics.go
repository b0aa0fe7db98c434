package kv

import (
	"fmt"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/internal/words"
)

// MaxTiers is how many tiers of a device Metrics tells apart.
const MaxTiers = 4

// Metrics is what a store has done and what it uses. The counts are sums over
// all sessions.
type Metrics struct {
	// Operations, those under way included, and without those refused.
	Reads, Upserts, RMWs, Deletes, Inserts uint64
	// Where reads found their answer: in the log's memory, in the read cache, or
	// with the last fetch from that tier of the device (0 where the device is not
	// tiered).
	ReadsMemory uint64
	ReadsCache  uint64
	ReadsTier   [MaxTiers]uint64
	// Records fetched from the device, for all operations; and those that the
	// read cache saved them from fetching.
	DeviceReads uint64
	CacheHits   uint64

	// Compactions, the records and bytes of log that they went through, those
	// that they copied to the tail, and by how much the log's begin moved.
	Compactions                     uint64
	CompactedRecords, CopiedRecords uint64
	CompactedBytes, CopiedBytes     int64
	ReclaimedBytes                  int64

	// Checkpoints made, and those that failed.
	Checkpoints, CheckpointErrors uint64

	// The log: bytes below Head are on the device only, those from ReadOnly on
	// are updated in place.
	Begin, Head, ReadOnly, Tail int64
	// MemoryBytes of log are resident, of at most MemoryBudget; the index takes
	// IndexBytes beside them.
	MemoryBytes, MemoryBudget, IndexBytes int64

	// The read cache, all 0 without one: CacheEntries records of CacheBytes, in
	// CacheBudget bytes of memory beside the log's; admitted to it and pushed out
	// again since its size last changed.
	CacheEntries, CacheBytes, CacheBudget int64
	CacheAdded, CacheEvicted              uint64
}

// String prints the metrics as a table.
func (m Metrics) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "operations\treads %d\tupserts %d\trmws %d\tdeletes %d\tinserts %d\n",
		m.Reads, m.Upserts, m.RMWs, m.Deletes, m.Inserts)
	fmt.Fprintf(w, "reads from\tmemory %d\t", m.ReadsMemory)
	if m.CacheBudget > 0 {
		fmt.Fprintf(w, "cache %d\t", m.ReadsCache)
	}
	for tier, n := range m.ReadsTier {
		if n > 0 || tier == 0 {
			fmt.Fprintf(w, "tier %d %d\t", tier, n)
		}
	}
	fmt.Fprintf(w, "\ndevice\trecords fetched %d\n", m.DeviceReads)
	fmt.Fprintf(w, "compaction\truns %d\trecords %d of %d copied\tbytes %v of %v copied\treclaimed %v\n",
		m.Compactions, m.CopiedRecords, m.CompactedRecords,
		units.Size(m.CopiedBytes), units.Size(m.CompactedBytes), units.Size(m.ReclaimedBytes))
	fmt.Fprintf(w, "checkpoints\tmade %d\tfailed %d\n", m.Checkpoints, m.CheckpointErrors)
	fmt.Fprintf(w, "log\tbegin %d\thead %d\tread-only %d\ttail %d\n", m.Begin, m.Head, m.ReadOnly, m.Tail)
	fmt.Fprintf(w, "memory\tlog %v of %v\tindex %v\n", units.Size(m.MemoryBytes), units.Size(m.MemoryBudget), units.Size(m.IndexBytes))
	if m.CacheBudget > 0 {
		fmt.Fprintf(w, "read cache\t%v of %v\trecords %d\thits %d\tadded %d\tevicted %d\n",
			units.Size(m.CacheBytes), units.Size(m.CacheBudget), m.CacheEntries, m.CacheHits, m.CacheAdded, m.CacheEvicted)
	}
	if err := w.Flush(); err != nil { // a Builder takes everything
		return err.Error()
	}
	return b.String()
}

// fromCache is the tier of what the read cache answered.
const fromCache = -1

// counts are one session's numbers. Those of operations change only inside an
// epoch: see [Session.begun].
type counts struct {
	ops         [opKinds]counter
	refused     uint64 // not published
	readsCache  counter
	readsTier   [MaxTiers]counter
	deviceReads counter
	cacheHits   counter
}

// counter is a number that its session alone counts up, by a plain load and
// store: an atomic add for each operation would cost as much as the operation's
// own work in the cache.
type counter uint64

func (c *counter) inc() { words.Store((*uint64)(c), uint64(*c)+1) }

func (c *counter) load() uint64 { return atomic.LoadUint64((*uint64)(c)) }

// all are the counters, in the order of Metrics.counts.
func (c *counts) all() [countersEach]*counter {
	return [...]*counter{
		&c.ops[OpRead], &c.ops[OpUpsert], &c.ops[OpRMW], &c.ops[OpDelete], &c.ops[OpInsert], &c.readsCache,
		&c.readsTier[0], &c.readsTier[1], &c.readsTier[2], &c.readsTier[3], &c.deviceReads,
		&c.cacheHits,
	}
}

func (m *Metrics) counts() [countersEach]*uint64 {
	return [...]*uint64{
		&m.Reads, &m.Upserts, &m.RMWs, &m.Deletes, &m.Inserts, &m.ReadsCache,
		&m.ReadsTier[0], &m.ReadsTier[1], &m.ReadsTier[2], &m.ReadsTier[3], &m.DeviceReads,
		&m.CacheHits,
	}
}

const countersEach = int(opNewest) + 1 + MaxTiers + 2 // the store's own operations left out

// addTo adds the numbers to m.
func (c *counts) addTo(m *Metrics) {
	sums := m.counts()
	for i, counter := range c.all() {
		*sums[i] += counter.load()
	}
	// Of a session that goes on, the tiers may be ahead of all reads.
	m.ReadsMemory = m.Reads - min(m.Reads, m.ReadsCache)
	for _, n := range m.ReadsTier {
		m.ReadsMemory -= min(m.ReadsMemory, n)
	}
}
