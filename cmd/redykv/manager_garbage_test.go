package main

import "testing"

func TestGCPercent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {64 << 20, 400}, {128 << 20, 200}, {256 << 20, 100}, {8 << 30, 100}} {
		if got := gcPercent(c.live); got != c.want {
			t.Errorf("%d live bytes: %d, want %d", c.live, got, c.want)
		}
	}
}
