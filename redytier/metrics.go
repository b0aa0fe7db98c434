package redytier

import (
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/mem"
)

// Metrics are the counters and state of a cache. Counters are sums over all sessions, open and
// closed.
type Metrics struct {
	Reads, Writes           uint64 // operations that succeeded
	BytesRead, BytesWritten uint64
	Errors                  uint64 // operations that failed
	Batches                 uint64 // request batches sent through message rings
	Panics                  uint64 // callbacks that panicked (A7)
	Sessions                int    // open
	QueuePairs              int    // open connections of sessions to servers
	// Tables is the number of region tables that were published, and TableTime the sum of the
	// times until the last session that was used meanwhile had them. The present table is
	// counted when the next one is published.
	Tables               uint64
	TableTime            time.Duration
	PopulateTime         time.Duration // that Create took to copy Config.File; 0 without one
	Regions, LostRegions int
}

// counters are the counters of one session, written by its owner once per Poll.
type counters struct {
	reads, writes, bytesRead, bytesWritten, errors, batches counter
}

// counter has one writer at a time, which adds by a plain load and store: an atomic addition
// would wait for the processor's store buffer, which holds the bytes of a read.
type counter uint64

func (c *counter) add(n uint64) { mem.StoreRelease((*uint64)(c), uint64(*c)+n) }

func (c *counter) load() uint64 { return atomic.LoadUint64((*uint64)(c)) }

// tally is what one Poll adds to the counters.
type tally struct {
	reads, writes, bytesRead, bytesWritten, errors uint64
}

func (t *tally) add(write bool, n int, err error) {
	switch {
	case err != nil:
		t.errors++
	case write:
		t.writes++
		t.bytesWritten += uint64(n)
	default:
		t.reads++
		t.bytesRead += uint64(n)
	}
}

func (c *counters) add(t *tally) {
	if t.reads > 0 {
		c.reads.add(t.reads)
		c.bytesRead.add(t.bytesRead)
	}
	if t.writes > 0 {
		c.writes.add(t.writes)
		c.bytesWritten.add(t.bytesWritten)
	}
	if t.errors > 0 {
		c.errors.add(t.errors)
	}
}

// addTo adds the counters to m.
func (c *counters) addTo(m *Metrics) {
	m.Reads += c.reads.load()
	m.Writes += c.writes.load()
	m.BytesRead += c.bytesRead.load()
	m.BytesWritten += c.bytesWritten.load()
	m.Errors += c.errors.load()
	m.Batches += c.batches.load()
}

// Metrics returns the cache's counts; safe for concurrent use.
func (c *Cache) Metrics() Metrics {
	t := c.table.Load()
	lost := len(t.lost())
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.past
	m.Regions, m.LostRegions = t.regions.len(), lost
	m.Sessions, m.Panics = len(c.sessions), c.panics.Load()
	for s := range c.sessions {
		for _, l := range s.links {
			if l.conn != nil {
				m.QueuePairs++
			}
		}
		s.counts.addTo(&m)
	}
	return m
}
