package redytier

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
)

// When the loss of a grant has been reported by several goroutines, none of them finds a table with
// regions on it afterwards: also one that comes while the first is being recorded, which takes long
// with many regions.
func TestSecondLossWaitsForTheTable(t *testing.T) {
	const grants, regions = 4, 1 << 16 // of each
	c := &Cache{log: slog.New(slog.DiscardHandler)}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	c.cancel() // nothing is replaced
	c.watcher = newWatcher(c)
	table := newTable(grants*regions*MinRegionSize, MinRegionSize, oneSided)
	table.regions.resize(grants * regions)
	for i := range grants * regions {
		if i%regions == 0 {
			table.endpoints = append(table.endpoints, newEndpoint(&grant{vm: "vm"}, oneSided))
		}
		table.restore(filled{place{region: i, endpoint: table.endpoints[i/regions]}})
	}
	c.table.Store(table)
	c.controller = startController(c)
	defer c.controller.stop()
	gone := errors.New("gone")
	for i, e := range table.endpoints {
		first := make(chan struct{})
		go func() {
			defer close(first)
			c.lose(e.grant, gone)
		}()
		for e.grant.lost.Load() == nil {
			runtime.Gosched()
		}
		c.lose(e.grant, gone)
		if on := c.table.Load().on(e.grant); len(on) > 0 {
			t.Errorf("grant %d is lost, and the table has %d regions there", i, len(on))
		}
		<-first
	}
}
