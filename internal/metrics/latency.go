// Package metrics has what the metrics of several packages share: classes of latencies.
// Package promtable has tables of Prometheus metrics.
package metrics

import (
	"math/bits"
	"time"
)

// LatencyClasses is the number of classes of latencies. A histogram over them costs one
// counter a class, and no lock. Each power of two nanoseconds has four classes, so a class
// ends within a quarter of any latency in it, and its middle is within an eighth. The first
// class has all latencies below 4 ns, the last all from 2^40 ns (18 minutes) on.
const (
	LatencyClasses = 4 * (maxPower - 2)
	maxPower       = 40
)

// LatencyClass returns the class of a latency.
func LatencyClass(d time.Duration) int {
	ns := uint64(min(max(d, 4), 1<<maxPower-1))
	n := bits.Len64(ns) // at least 3: the first bit gives the power, the next two the class in it
	return 4*(n-3) + int(ns>>(n-3))&3
}

// LatencyClassEnd returns the least latency that is longer than those of a class.
func LatencyClassEnd(class int) time.Duration {
	power := class / 4
	return time.Duration(5+class%4) << power
}

// LatencyClassMiddle returns the middle of a class.
func LatencyClassMiddle(class int) time.Duration {
	width := time.Duration(1) << (class / 4)
	return LatencyClassEnd(class) - width + width/2
}
