package device

import (
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/metrics"
)

// latencies is a histogram of times. One goroutine adds; others may read meanwhile.
type latencies struct {
	counts [metrics.LatencyClasses]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func (l *latencies) add(d time.Duration) {
	l.counts[metrics.LatencyClass(d)].Add(1)
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
			return metrics.LatencyClassMiddle(i)
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
