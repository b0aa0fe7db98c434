package model

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

// R58, Q23: the sizes of section 5.2's space and others, by formula. The paper's formula
// omits one queue depth.
func TestLeaves(t *testing.T) {
	for _, tc := range []struct {
		space Space
		want  int64
	}{
		{Space{C: 30, B: BatchLimit(8), Opt: 4, Q: 16}, 3_095_430},
		{Space{C: 30, B: BatchLimit(8), Opt: 1, Q: 16}, 3_809_760},
		{Space{C: 30, B: BatchLimit(8), Opt: 5, Q: 16}, 2_857_320},
		{Space{C: 1, B: 1, Opt: 1, Q: 1}, 2},
		{Space{C: 30, B: BatchLimit(4096), Opt: 4, Q: 16}, 6435},
	} {
		if got := tc.space.Leaves(); got != tc.want {
			t.Errorf("%+v has %d leaves, want %d", tc.space, got, tc.want)
		}
	}
}

// The tree has as many leaves as the formula says, each in the space, and in order.
func TestAll(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		s := drawSpace(t)
		n := int64(0)
		last := Config{}
		for c := range s.All() {
			if !s.Contains(c) {
				t.Fatalf("%v is not in %+v", c, s)
			}
			if n > 0 && !before(last, c) {
				t.Fatalf("%v comes after %v", c, last)
			}
			last = c
			n++
		}
		if n != s.Leaves() {
			t.Fatalf("%+v: %d leaves, %d by the formula", s, n, s.Leaves())
		}
	})
}

// before is the order of the search.
func before(a, b Config) bool {
	for _, d := range []int{a.S - b.S, a.C - b.C, a.B - b.B, a.Q - b.Q} {
		if d != 0 {
			return d < 0
		}
	}
	return false
}

func TestSpaceCheck(t *testing.T) {
	for _, s := range []Space{{}, {C: 1, B: 1, Opt: 2, Q: 1}, {C: 0, B: 1, Opt: 1, Q: 1}, {C: 1, B: 1, Opt: 0, Q: 1}, {C: 1 << 20, B: 1, Opt: 1, Q: 1}} {
		if s.Check() == nil {
			t.Errorf("%+v is taken for a space", s)
		}
	}
}
