package device

import (
	"sync/atomic"
	"time"
)

// TierMetrics is what one tier of a Tiered has done since it was made, over all
// queues, and how it is.
type TierMetrics struct {
	Name    string
	Healthy bool
	// Reason is why the tier is out of the set or, of the last tier, the error
	// of its last write; nil while it is healthy.
	Reason error
	Begin  int64 // lowest address that the tier answers for

	Hits         uint64 // reads that the tier answered
	BytesRead    uint64
	BytesWritten uint64
	FallThroughs uint64 // reads that the tier was asked for and did not answer
	ReadErrors   uint64 // of these, other than for not holding the address
	WriteErrors  uint64
	Failures     uint64 // errors that counted against its health
	Restarts     uint64 // times that it came back into the set
	Backlog      int64  // bytes that were handed to the tier and are not there yet

	// Times of reads that the tier answered, of a sample, and of writes, both from
	// where they were handed to the tier. The 99th percentiles are right within an
	// eighth.
	ReadMean, ReadP99, WriteMean, WriteP99 time.Duration

	// Missing is how many bytes the tier lacks and has room for: of a Refiller its holes,
	// of others what lies below Begin. See [TieredOptions].RefillRate.
	Missing int64
	// Lost is why part of the tier's memory is not there, of a tier that can say so; nil
	// while all of it is.
	Lost     error
	Refills  uint64 // pieces of them that were copied back
	Refilled uint64 // bytes of these
}

// Metrics returns the state of every tier, the first one first. The counts are
// read while operations go on and lag behind the queues by one Poll at most.
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

// tierCounts is what one queue has counted since its last Poll; the queue's
// owner has it to itself.
type tierCounts struct {
	hits, bytesRead, bytesWritten, fallThroughs, readErrors, writeErrors uint64
}

// tierCounters is the same for everybody to read.
type tierCounters struct {
	hits, bytesRead, bytesWritten, fallThroughs, readErrors, writeErrors atomic.Uint64

	behind        atomic.Int64 // bytes that are on their way to the tier
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

// publish moves what was counted since the last Poll to where Metrics finds it:
// once for many operations.
func (q *tieredQueue) publish() {
	for i := range q.counters {
		if c := &q.counts[i]; *c != (tierCounts{}) {
			q.counters[i].add(c)
			*c = tierCounts{}
		}
	}
}
