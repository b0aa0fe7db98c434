package plot

import (
	"math"
	"slices"
	"testing"
)

func TestAxis(t *testing.T) {
	for _, c := range []struct {
		axis      Axis
		numbers   []float64
		low, high float64
		ticks     []float64
	}{
		{Axis{}, []float64{3, 9.2}, 0, 10, []float64{0, 2, 4, 6, 8, 10}},
		{Axis{}, []float64{-3, 6}, -4, 6, []float64{-4, -2, 0, 2, 4, 6}},
		{Axis{}, nil, 0, 1, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{Axis{}, []float64{0}, 0, 1, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{Axis{Log: true}, []float64{0.03, 4, 0, math.NaN()}, 0.01, 10, []float64{0.01, 0.1, 1, 10}},
		{Axis{Log: true}, []float64{5}, 1, 10, []float64{1, 2, 5, 10}},
		{Axis{Log: true}, []float64{10}, 10, 100, []float64{10, 20, 50, 100}},
	} {
		a := newAxis(c.axis, c.numbers)
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9*math.Max(1, math.Abs(b)) }
		if !near(a.low, c.low) || !near(a.high, c.high) || !slices.EqualFunc(a.ticks, c.ticks, near) {
			t.Errorf("%+v of %v: %v to %v by %v", c.axis, c.numbers, a.low, a.high, a.ticks)
		}
	}
	for v, want := range map[float64]string{0: "0", 12.345: "12.3", 0.05: "0.05", 1234.5: "1235", 2.5e6: "2.5 M", 1.0004: "1", -0.25: "-0.25", 0.00012: "0.00012"} {
		if got := Figure(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}
