package store

import (
	"testing"
	"time"

	"github.com/redykv/redykv/internal/bench"
)

// TestTouches checks how many bytes of a value each operation reads and writes.
func TestTouches(t *testing.T) {
	for _, tc := range []struct {
		op            Op
		size          int
		read, written float64
	}{{Read, 1024, 1024, 0}, {Upsert, 1024, 0, 1024}, {RMW, 1024, 8, 8}, {RMW, 8, 8, 8}, {Mixed, 100, 50, 50}} {
		if read, written := tc.op.touches(tc.size); read != tc.read || written != tc.written {
			t.Errorf("%s of %d bytes reads %g and writes %g, want %g and %g", tc.op, tc.size, read, written, tc.read, tc.written)
		}
	}
}

func TestSampleOfThreads(t *testing.T) {
	got := sampleOf([]tally{{2e6, time.Second, time.Second}, {3e6, 2 * time.Second, time.Second / 2}}, 2)
	if want := (bench.Sample{Operations: 5e6, Seconds: 2, Mops: 3.5, CPUShare: 0.5}); got != want {
		t.Errorf("two threads make %v, want %v", got, want)
	}
	if got := sampleOf([]tally{{1e6, time.Second, 0}}, 1); got.CPUShare != 1 {
		t.Errorf("without processor times the share is %g, want 1", got.CPUShare)
	}
}
