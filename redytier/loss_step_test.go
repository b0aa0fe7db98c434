package redytier

import (
	"errors"
	"runtime"
	"testing"
)

// When the loss of a grant has been reported by several goroutines, none of them finds a table with
// regions on it afterwards: also one that comes while the first is being recorded.
func TestSecondLossWaitsForTheTable(t *testing.T) {
	const vms, regions = 4, 4096
	c := newCluster(t, "mem", vms, 2*regions/vms*MinRegionSize)
	cache := c.create(t, Config{Capacity: regions * MinRegionSize, RegionSize: MinRegionSize, Configuration: oneSided})
	gone := errors.New("gone")
	for _, g := range cache.table.Load().grants() {
		first := make(chan struct{})
		go func() {
			defer close(first)
			cache.lose(g, gone)
		}()
		for g.lost.Load() == nil {
			runtime.Gosched()
		}
		cache.lose(g, gone)
		if on := cache.table.Load().on(g); len(on) > 0 {
			t.Errorf("%d regions are on VM %s, which is lost", len(on), g.vm)
		}
		<-first
	}
}
