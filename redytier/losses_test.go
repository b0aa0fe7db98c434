package redytier

import (
	"errors"
	"math"
	"testing"
)

// Losses is the sum of the epochs of the regions that have the bytes.
func TestLosses(t *testing.T) {
	c := newCluster(t, "mem", 2, 1<<20)
	const size = 1 << 16
	cache := c.create(t, Config{Capacity: 4*size - 10, RegionSize: size, Configuration: oneSided})
	cache.lose(cache.table.Load().regions.at(0).endpoint.grant, errors.New("gone")) // of the regions 0 and 1
	for _, x := range []struct {
		addr, length int64
		want         uint64
	}{
		{0, 1, 1}, {0, size, 1}, {size - 1, 2, 2}, {0, 4*size - 10, 2}, {2*size - 1, 2, 1},
		{2 * size, size, 0}, {4*size - 11, 1, 0}, {0, 0, 0}, {4*size - 10, 0, 0},
	} {
		if got, err := cache.Losses(x.addr, x.length); got != x.want || err != nil {
			t.Errorf("losses of %d bytes at %d: %d, %v; want %d", x.length, x.addr, got, err, x.want)
		}
	}
	for _, x := range [][2]int64{{-1, 1}, {0, -1}, {4*size - 10, 1}, {1, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}} {
		if _, err := cache.Losses(x[0], x[1]); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("losses of %d bytes at %d: %v", x[1], x[0], err)
		}
	}
}

// Check refuses what Create refuses, and changes nothing.
func TestConfigCheck(t *testing.T) {
	good := Config{Capacity: 1 << 20}
	if err := good.Check(); err != nil || good.RegionSize != 0 {
		t.Errorf("%v, region size %d", err, good.RegionSize)
	}
	for name, bad := range map[string]Config{
		"capacity":      {},
		"region size":   {Capacity: 1 << 20, RegionSize: 5000},
		"configuration": {Capacity: 1 << 20, Configuration: Configuration{ClientThreads: 1}},
		"network":       {Capacity: 1 << 20, Net: "fast"},
	} {
		if bad.Check() == nil {
			t.Errorf("bad %s is accepted", name)
		}
	}
}
