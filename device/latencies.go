package device

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// latencies is a histogram of times, with four buckets for each power of two
// nanoseconds: what it says is right within an eighth. Its owner adds; everybody may
// read meanwhile.
type latencies struct {
	counts [latencyBuckets]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

// latencyBits bounds what is told apart: 2^40 ns are 18 minutes.
const (
	latencyBits    = 40
	latencyBuckets = 4 * (latencyBits - 2)
)

// latencyBucket returns the bucket of a time.
func latencyBucket(d time.Duration) int {
	ns := uint64(min(max(d, 4), 1<<latencyBits-1))
	n := bits.Len64(ns) // 3 or more: the first bit is that of the power, the next two count
	return 4*(n-3) + int(ns>>(n-3))&3
}

// latencyOf returns the middle of a bucket.
func latencyOf(bucket int) time.Duration {
	power := bucket / 4
	return time.Duration(4+bucket%4)<<power + 1<<power/2
}

func (l *latencies) add(d time.Duration) {
	l.counts[latencyBucket(d)].Add(1)
	l.sum.Add(int64(d))
}

func (l *latencies) merge(o *latencies) {
	for i := range o.counts {
		if n := o.counts[i].Load(); n > 0 {
			l.counts[i].Add(n)
		}
	}
	l.sum.Add(o.sum.Load())
}

// mean and p99 of what was added; 0 of nothing.
func (l *latencies) mean() time.Duration {
	if n := l.n(); n > 0 {
		return time.Duration(l.sum.Load() / int64(n))
	}
	return 0
}

func (l *latencies) p99() time.Duration {
	n := l.n()
	rest := n - n/100
	for i := range l.counts {
		if c := l.counts[i].Load(); c < rest {
			rest -= c
		} else if n > 0 {
			return latencyOf(i)
		}
	}
	return 0
}

func (l *latencies) n() (n uint64) {
	for i := range l.counts {
		n += l.counts[i].Load()
	}
	return n
}
