package manager

import (
	"errors"
	"testing"
	"time"
)

// TestLateBeatsCount: a beat that is answered late stands for those that its player could not send meanwhile.
func TestLateBeatsCount(t *testing.T) {
	for name, tc := range map[string]struct {
		took, every time.Duration
		calls       int64
		longest     float64 // milliseconds
		median      float64
	}{
		"in time":           {took: 900 * time.Millisecond, every: time.Second, calls: 1, longest: 900, median: 900},
		"late":              {took: 6 * time.Second, every: time.Second, calls: 6, longest: 6000, median: 3000},
		"without intervals": {took: 6 * time.Second, calls: 1, longest: 6000, median: 6000},
		"too late":          {took: time.Hour, every: 20 * time.Second, calls: 3, longest: 60000, median: 40000},
	} {
		l := newLatencies()
		l.add(time.Second, tc.every, errors.New("refused"))
		l.add(tc.took, tc.every, nil)
		near := func(got, want float64) bool { return got >= want*0.99 && got <= want*1.01 }
		if l.failed != 1 || l.h.TotalCount() != tc.calls || !near(l.millis(100), tc.longest) || !near(l.millis(50), tc.median) {
			t.Errorf("%s: %d failed, %d calls, longest %v ms, median %v ms", name, l.failed, l.h.TotalCount(), l.millis(100), l.millis(50))
		}
	}
}
