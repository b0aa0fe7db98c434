package redytier

import "sync/atomic"

// Metrics is what a cache has done and how it stands. Counts are sums over all
// sessions, open and closed, read while operations go on.
type Metrics struct {
	Reads, Writes           uint64 // operations that succeeded
	BytesRead, BytesWritten uint64
	Errors                  uint64 // operations that failed
	Batches                 uint64 // request batches sent through message rings
	Panics                  uint64 // callbacks that panicked (A7)
	Sessions                int    // open now
	Regions, LostRegions    int
}

// counters are one session's share, written by its owner once for a Poll.
type counters struct {
	reads, writes, bytesRead, bytesWritten, errors, batches atomic.Uint64
}

// tally is what one Poll has to add to the counters.
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
		c.reads.Add(t.reads)
		c.bytesRead.Add(t.bytesRead)
	}
	if t.writes > 0 {
		c.writes.Add(t.writes)
		c.bytesWritten.Add(t.bytesWritten)
	}
	if t.errors > 0 {
		c.errors.Add(t.errors)
	}
}

// absorb adds the counters of a session that is closed.
func (c *counters) absorb(o *counters) {
	c.reads.Add(o.reads.Load())
	c.writes.Add(o.writes.Load())
	c.bytesRead.Add(o.bytesRead.Load())
	c.bytesWritten.Add(o.bytesWritten.Load())
	c.errors.Add(o.errors.Load())
	c.batches.Add(o.batches.Load())
}

// addTo adds the counters to m.
func (c *counters) addTo(m *Metrics) {
	m.Reads += c.reads.Load()
	m.Writes += c.writes.Load()
	m.BytesRead += c.bytesRead.Load()
	m.BytesWritten += c.bytesWritten.Load()
	m.Errors += c.errors.Load()
	m.Batches += c.batches.Load()
}

// Metrics returns the cache's counts; safe for concurrent use.
func (c *Cache) Metrics() Metrics {
	t := c.table.Load()
	m := Metrics{Regions: len(t.regions), Panics: c.panics.Load()}
	for i := range t.regions {
		if t.regions[i].link == nil {
			m.LostRegions++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Sessions = len(c.sessions)
	c.past.addTo(&m)
	for s := range c.sessions {
		s.counts.addTo(&m)
	}
	return m
}
