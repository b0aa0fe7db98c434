package metrics

import (
	"testing"
	"time"
)

// TestLatencyClasses checks that each latency lies within its class, and within an eighth of
// the class's middle.
func TestLatencyClasses(t *testing.T) {
	for d := time.Duration(4); d < 1<<maxPower; d += max(1, d/37) {
		c := LatencyClass(d)
		if c < 0 || c >= LatencyClasses || LatencyClassEnd(c) <= d || c > 0 && LatencyClassEnd(c-1) > d {
			t.Fatalf("%v is in class %d, which ends at %v", d, c, LatencyClassEnd(c))
		}
		if off := LatencyClassMiddle(c) - d; max(off, -off)*8 > d {
			t.Fatalf("%v is taken for %v", d, LatencyClassMiddle(c))
		}
	}
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, 4: 0, 1 << 62: LatencyClasses - 1} {
		if c := LatencyClass(d); c != want {
			t.Errorf("%v is in class %d, want %d", d, c, want)
		}
	}
}
