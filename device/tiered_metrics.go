package device

import (
	"sync/atomic"
	"time"
)

// TierMetrics are the counters of one tier of a Tiered since it was made, over all queues,
// and its health.
type TierMetrics struct {
	Name    string
	Healthy bool
	// Reason is why the tier is out of the set or, of the last tier, the error
	// of its last write; nil while it is healthy.
	Reason error
	Begin  int64 // lowest address that the tier answers

	Hits         uint64 // reads that the tier answered
	BytesRead    uint64
	BytesWritten uint64
	FallThroughs uint64 // reads that the tier was given and did not answer
	ReadErrors   uint64 // of these, with other errors than ErrNotHeld
	WriteErrors  uint64
	Failures     uint64 // errors that counted against its health
	Restarts     uint64 // times that it came back into the set
	Backlog      int64  // bytes that the tier was given and has not stored yet

	// Latencies of a sample of the reads that the tier answered, and of writes, from
	// when the tier was given them. The 99th percentiles are accurate to an eighth.
	ReadMean, ReadP99, WriteMean, WriteP99 time.Duration

	// Missing is the number of bytes that the tier lacks and has room for: the holes of a
	// Refiller; for other tiers the range below Begin, the field above. See
	// [TieredOptions].RefillRate.
	Missing int64
	// Lost is the error that made the tier lose a part of its memory, if the tier has an Err
	// method; else nil.
	Lost     error
	Refills  uint64 // pieces that were copied back
	Refilled uint64 // bytes of these
}

// Metrics returns the state of every tier, the first one first. The counts lag behind the
// queues by at most one Poll.
func (t *Tiered) Metrics() []TierMetrics {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]TierMetrics, len(t.tiers))
	for i, tr := range t.tiers {
		var sum tierCounters
		sum.merge(&tr.retired)
		for q := range t.queues {
			sum.merge(&q.counters[i])
		}
		all[i] = TierMetrics{
			Name: tr.name, Healthy: tr.reason == nil, Reason: tr.reason,
			Begin:        max(tr.floor.Load(), tr.dev.Begin()),
			Hits:         sum.hits.Load(),
			BytesRead:    sum.bytesRead.Load(),
			BytesWritten: sum.bytesWritten.Load(),
			FallThroughs: sum.fallThroughs.Load(),
			ReadErrors:   sum.readErrors.Load(),
			WriteErrors:  sum.writeErrors.Load(),
			Failures:     tr.failures, Restarts: tr.restarts,
			Backlog:  sum.behind.Load(),
			ReadMean: sum.reads.mean(), ReadP99: sum.reads.p99(),
			WriteMean: sum.writes.mean(), WriteP99: sum.writes.p99(),
		}
		if d, ok := tr.dev.(interface{ Err() error }); ok {
			all[i].Lost = d.Err()
		}
		if r := tr.refill; r != nil {
			all[i].Missing, all[i].Refills, all[i].Refilled = r.dev.Missing(), r.pieces.Load(), r.bytes.Load()
		}
	}
	return all
}

// tierCounts are the counts of one queue since its last Poll; they belong to the queue's
// goroutine.
type tierCounts struct {
	hits, bytesRead, bytesWritten, fallThroughs, readErrors, writeErrors uint64
}

// tierCounters are the same for concurrent readers.
type tierCounters struct {
	hits, bytesRead, bytesWritten, fallThroughs, readErrors, writeErrors atomic.Uint64

	behind        atomic.Int64 // bytes pending on the tier
	reads, writes latencies
}

func (c *tierCounters) add(n *tierCounts) {
	c.hits.Add(n.hits)
	c.bytesRead.Add(n.bytesRead)
	c.bytesWritten.Add(n.bytesWritten)
	c.fallThroughs.Add(n.fallThroughs)
	c.readErrors.Add(n.readErrors)
	c.writeErrors.Add(n.writeErrors)
}

func (c *tierCounters) merge(o *tierCounters) {
	c.add(&tierCounts{
		hits: o.hits.Load(), bytesRead: o.bytesRead.Load(), bytesWritten: o.bytesWritten.Load(),
		fallThroughs: o.fallThroughs.Load(), readErrors: o.readErrors.Load(), writeErrors: o.writeErrors.Load(),
	})
	c.behind.Add(o.behind.Load())
	c.reads.merge(&o.reads)
	c.writes.merge(&o.writes)
}

// publish adds the counts since the last Poll to the counters that Metrics reads, once for
// many operations.
func (q *tieredQueue) publish() {
	for i := range q.counters {
		if c := &q.counts[i]; *c != (tierCounts{}) {
			q.counters[i].add(c)
			*c = tierCounts{}
		}
	}
}
