// Package latency sorts times into classes, for histograms that cost a counter a class
// and no lock.
package latency

import (
	"math/bits"
	"time"
)

// Classes is how many there are: four for each power of two nanoseconds, so that where
// a class ends is within a quarter of any time in it, and its middle within an eighth.
// All below 4 ns are in the first one, all from 2^40 ns on, which are 18 minutes, in the
// last.
const (
	Classes = 4 * (most - 2)
	most    = 40
)

// ClassOf is the class of a time.
func ClassOf(d time.Duration) int {
	ns := uint64(min(max(d, 4), 1<<most-1))
	n := bits.Len64(ns) // 3 or more: the first bit is that of the power, the next two count
	return 4*(n-3) + int(ns>>(n-3))&3
}

// End is the least time that is longer than those of a class.
func End(class int) time.Duration {
	power := class / 4
	return time.Duration(5+class%4) << power
}

// Middle of a class.
func Middle(class int) time.Duration {
	width := time.Duration(1) << (class / 4)
	return End(class) - width + width/2
}
