package kv

import (
	"sync/atomic"

	"github.com/redykv/redykv/internal/mem"
)

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

func (c *counter) inc() { mem.StoreRelease((*uint64)(c), uint64(*c)+1) }

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
		&m.Operations.Reads, &m.Operations.Upserts, &m.Operations.RMWs, &m.Operations.Deletes, &m.Operations.Inserts, &m.ReadsFrom.Cache,
		&m.ReadsFrom.Tier[0], &m.ReadsFrom.Tier[1], &m.ReadsFrom.Tier[2], &m.ReadsFrom.Tier[3], &m.Device.Reads,
		&m.ReadCache.Hits,
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
	m.ReadsFrom.Memory = m.Operations.Reads - min(m.Operations.Reads, m.ReadsFrom.Cache)
	for _, n := range m.ReadsFrom.Tier {
		m.ReadsFrom.Memory -= min(m.ReadsFrom.Memory, n)
	}
}
