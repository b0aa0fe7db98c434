package epoch

import (
	"testing"
	"time"
)

func TestStalls(t *testing.T) {
	table := New()
	if s := table.Stalls(); s != (Stalls{}) {
		t.Errorf("of a new table: %+v", s)
	}
	var inside time.Duration
	for range 3 {
		table.Exclusive(func() {
			for start := time.Now(); inside <= time.Millisecond; inside = time.Since(start) {
			}
		})
	}
	s := table.Stalls()
	if s.Count != 3 || s.Max < inside || s.Last <= 0 || s.Last > s.Max || s.Total < s.Max+s.Last {
		t.Errorf("%+v, of which the first took more than %v", s, inside)
	}
}
