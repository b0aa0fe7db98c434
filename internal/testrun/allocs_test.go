package testrun

import "testing"

var sink *int

// TestAllocsPerRun has a function that allocates always, and one that does so at first.
func TestAllocsPerRun(t *testing.T) {
	SkipRaced(t, "the race detector allocates")
	allocate := func() { sink = new(int) }
	if n := AllocsPerRun(10, allocate); n < 1 {
		t.Errorf("%g allocations of one that allocates always", n)
	}
	left := 20 // more than the first measurement's calls
	if n := AllocsPerRun(10, func() {
		if left--; left > 0 {
			allocate()
		}
	}); n != 0 {
		t.Errorf("%g allocations of one that allocates at first", n)
	}
}
