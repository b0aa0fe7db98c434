package kv

import (
	"fmt"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"github.com/redykv/redykv/internal/units"
)

// MaxTiers is how many tiers of a device Metrics tells apart.
const MaxTiers = 4

// Metrics is what a store has done and what it uses. The counts are sums over
// all sessions; an open session's last few operations may not be in them yet.
type Metrics struct {
	// Operations completed.
	Reads, Upserts, RMWs, Deletes, Inserts uint64
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

// String prints the metrics as a table.
func (m Metrics) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "operations\treads %d\tupserts %d\trmws %d\tdeletes %d\tinserts %d\n",
		m.Reads, m.Upserts, m.RMWs, m.Deletes, m.Inserts)
	fmt.Fprintf(w, "reads from\tmemory %d\t", m.ReadsMemory)
	for tier, n := range m.ReadsTier {
		if n > 0 || tier == 0 {
			fmt.Fprintf(w, "tier %d %d\t", tier, n)
		}
	}
	fmt.Fprintf(w, "\ndevice\trecords fetched %d\n", m.DeviceReads)
	fmt.Fprintf(w, "log\tbegin %d\thead %d\tread-only %d\ttail %d\n", m.Begin, m.Head, m.ReadOnly, m.Tail)
	fmt.Fprintf(w, "memory\tlog %v of %v\tindex %v\n", units.Size(m.MemoryBytes), units.Size(m.MemoryBudget), units.Size(m.IndexBytes))
	if err := w.Flush(); err != nil { // a Builder takes everything
		return err.Error()
	}
	return b.String()
}

// fromMemory is the tier of a read that needed none.
const fromMemory = -1

// counts are one session's numbers. The session counts in plain words and
// publishes them now and then: an atomic add for each operation would cost as
// much as the operation's own work in the cache.
type counts struct {
	ops         [opKinds]uint64
	readsMemory uint64
	readsTier   [MaxTiers]uint64
	deviceReads uint64

	unpublished int
	published   [countWords]atomic.Uint64
}

const (
	countWords   = int(opKinds) + 1 + MaxTiers + 1
	publishEvery = 64
)

// finished counts an operation whose answer came from tier.
func (c *counts) finished(kind OpKind, tier int) {
	c.ops[kind]++
	if kind == OpRead {
		if tier == fromMemory {
			c.readsMemory++
		} else {
			c.readsTier[min(tier, MaxTiers-1)]++
		}
	}
	if c.unpublished++; c.unpublished >= publishEvery {
		c.publish()
	}
}

// readFromMemory is finished for the most frequent case.
func (c *counts) readFromMemory() {
	c.ops[OpRead]++
	c.readsMemory++
	if c.unpublished++; c.unpublished >= publishEvery {
		c.publish()
	}
}

func (c *counts) publish() {
	c.unpublished = 0
	at := 0
	put := func(v uint64) {
		c.published[at].Store(v)
		at++
	}
	for _, v := range c.ops {
		put(v)
	}
	put(c.readsMemory)
	for _, v := range c.readsTier {
		put(v)
	}
	put(c.deviceReads)
}

// addTo adds what was published to m.
func (c *counts) addTo(m *Metrics) {
	at := 0
	for _, v := range []*uint64{
		&m.Reads, &m.Upserts, &m.RMWs, &m.Deletes, &m.Inserts, &m.ReadsMemory,
		&m.ReadsTier[0], &m.ReadsTier[1], &m.ReadsTier[2], &m.ReadsTier[3], &m.DeviceReads,
	} {
		*v += c.published[at].Load()
		at++
	}
}
