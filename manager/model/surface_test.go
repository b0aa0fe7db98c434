package model

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/redykv/redykv/internal/testrun/property"
)

func mustSurface(t interface{ Fatal(...any) }, space Space, measured map[Config]Performance) *Surface {
	f, err := NewSurface(space, measured)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// close1 reports whether two figures are equal up to rounding.
func close1(a, b float64) bool { return math.Abs(a-b) <= 1e-9*(1+math.Abs(a)) }

// R63: f(1,1,1,3) is the mean of f(1,1,1,2) and f(1,1,1,4).
func TestMeanOfNeighbours(t *testing.T) {
	f := mustSurface(t, Space{C: 1, B: 1, Opt: 1, Q: 4}, map[Config]Performance{
		{1, 0, 1, 1}: {10, 1}, {1, 0, 1, 2}: {12, 2}, {1, 0, 1, 4}: {20, 3},
	})
	if got, want := f.At(Config{1, 1, 1, 3}), (Performance{16, 2.5}); got != want {
		t.Errorf("f(1,1,1,3) = %v, want %v", got, want)
	}
}

// At measured configurations the surface has the measured figures.
func TestExactWhereMeasured(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		space := drawSpace(t)
		measured := map[Config]Performance{}
		value := 1.0
		for c := range space.grid() {
			measured[c] = Performance{LatencyUs: value, Mops: 1000 - value}
			value++ // in the order of the search, so that nothing is smoothed along q and b
		}
		f := mustSurface(t, space, measured)
		for c, p := range measured {
			if got := f.At(c); got.Mops != p.Mops || got.LatencyUs < p.LatencyUs {
				t.Fatalf("f(%v) = %v, measured %v", c, got, p)
			}
		}
	})
}

// A20: the surface is exact for a function that is linear in c and s together, in b, and in
// q. With b = 1 server threads do not matter.
func TestExactOnLinearFunctions(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		space := drawSpace(t)
		k := rapid.SliceOfN(rapid.Float64Range(0.1, 10), 8, 8).Draw(t, "coefficients")
		linear := func(c Config) Performance {
			c = c.alias()
			threads := k[0] + k[1]*float64(c.C) + k[2]*float64(c.S)
			batches := k[3] + k[4]*float64(c.B) + k[5]*float64(c.Q) + k[6]*float64(c.B*c.Q)
			return Performance{LatencyUs: threads * batches, Mops: k[7] + threads + batches}
		}
		measured := map[Config]Performance{}
		for c := range space.grid() {
			measured[c] = linear(c)
		}
		f := mustSurface(t, space, measured)
		if !f.monotone {
			t.Fatal("a function that rises is said not to be monotone")
		}
		for c := range space.All() {
			if got, want := f.At(c), linear(c); !close1(got.LatencyUs, want.LatencyUs) || !close1(got.Mops, want.Mops) {
				t.Fatalf("f(%v) = %v, want %v", c, got, want)
			}
		}
	})
}

// A21: a cell with a missing corner meets no SLO, and its neighbours do not change. Its
// throughput is the last measured one.
func TestMissingCorner(t *testing.T) {
	space := Space{C: 4, B: 1, Opt: 1, Q: 4}
	measured := map[Config]Performance{}
	for c := range space.grid() {
		measured[c] = Performance{LatencyUs: float64(c.Q + c.C), Mops: float64(c.C)}
	}
	delete(measured, Config{4, 0, 1, 4}) // and with it the cell of c from 3 and q from 3
	f := mustSurface(t, space, measured)
	for c := range space.All() {
		missing := c.C > 2 && c.Q > 2
		if got := f.At(c); math.IsInf(got.LatencyUs, 1) != missing || math.IsNaN(got.Mops) {
			t.Errorf("f(%v) = %v", c, got)
		}
	}
	if got := f.At(Config{4, 0, 1, 4}); got.Mops != 2 {
		t.Errorf("beyond the last measured 2 Mop/s, %v", got)
	}
	if _, err := f.Search(space, SLO{Mops: 4.5}); err == nil {
		t.Error("a throughput is found that was never measured")
	}
}

// Outside the measured range the surface predicts nothing.
func TestBeyondMeasured(t *testing.T) {
	f := mustSurface(t, Space{C: 2, B: 4, Opt: 1, Q: 4}, map[Config]Performance{{1, 0, 1, 1}: {1, 1}})
	for _, c := range []Config{{3, 0, 1, 1}, {1, 0, 1, 8}, {2, 1, 8, 1}, {1, 2, 1, 1}, {0, 0, 1, 1}, {1, 0, 2, 1}} {
		if got := f.At(c); !math.IsInf(got.LatencyUs, 1) {
			t.Errorf("f(%v) = %v", c, got)
		}
	}
}

// A22: a latency that is below its predecessor by no more than noise is raised. A larger
// difference is kept, and the search is exact then.
func TestSmooth(t *testing.T) {
	space := Space{C: 1, B: 1, Opt: 1, Q: 4}
	measured := map[Config]Performance{{1, 0, 1, 1}: {10, 1}, {1, 0, 1, 2}: {9.9, 2}, {1, 0, 1, 4}: {20, 3}}
	f := mustSurface(t, space, measured)
	if got := f.At(Config{1, 0, 1, 2}).LatencyUs; got != 10 || !f.monotone {
		t.Errorf("a latency of 9.9 us after one of 10 is %v, monotone: %v", got, f.monotone)
	}
	measured[Config{1, 0, 1, 2}] = Performance{5, 2}
	f = mustSurface(t, space, measured)
	if got := f.At(Config{1, 0, 1, 2}).LatencyUs; got != 5 || f.monotone {
		t.Errorf("a latency of 5 us after one of 10 is %v, monotone: %v", got, f.monotone)
	}
	if got, err := f.Search(space, SLO{LatencyUs: 6}); err != nil || got.Config.Q != 2 || !got.Exact {
		t.Errorf("within 6 us: %v %v, want q = 2", got, err)
	}
}

func TestSurfaceRefuses(t *testing.T) {
	space := Space{C: 2, B: 4, Opt: 1, Q: 4}
	for _, at := range []Config{{1, 0, 1, 3}, {1, 1, 1, 1}, {1, 0, 2, 1}, {1, 2, 2, 1}, {4, 0, 1, 1}, {}} {
		if _, err := NewSurface(space, map[Config]Performance{at: {1, 1}}); err == nil {
			t.Errorf("%v is taken for measured", at)
		}
	}
	for _, p := range []Performance{{0, 1}, {1, 0}, {-1, 1}, {math.NaN(), 1}, {1, math.NaN()}, {math.Inf(1), 1}, {1, math.Inf(1)}} {
		if _, err := NewSurface(space, map[Config]Performance{{1, 0, 1, 1}: p}); err == nil {
			t.Errorf("%v is taken for measured", p)
		}
	}
}
