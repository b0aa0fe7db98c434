package redytier

import (
	"testing"
	"time"
)

// The time that a move took is reported with the Settle that gives back the memory that the regions have
// left: the manager believes no other.
func TestMoveIsReportedOnce(t *testing.T) {
	c := newCluster(t, "mem", 1, 1<<20)
	cache := c.create(t, Config{Capacity: 1 << 16, RegionSize: 1 << 15, Configuration: oneSided})
	g := cache.table.Load().grants()[0]
	settle := func(regions uint32) uint64 {
		t.Helper()
		cache.controller.do(func() {
			g.regions.Store(regions)
			if err := cache.settleAs(t.Context(), cache.Configuration(), nil); err != nil {
				t.Error(err)
			}
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.settled.GetMovedBytes()
	}
	cache.controller.do(func() { cache.moved = moveStats{bytes: 1 << 15, took: time.Second} })
	for i, step := range []struct {
		regions uint32
		moved   uint64
	}{{3, 0}, {2, 1 << 15}, {2, 0}} {
		if got := settle(step.regions); got != step.moved {
			t.Errorf("Settle %d, of %d regions of which two are used, reports %d bytes, want %d", i, step.regions, got, step.moved)
		}
	}
}
