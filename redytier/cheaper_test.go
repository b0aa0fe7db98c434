package redytier

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// twoSizes sells VMs of two and of four regions.
func twoSizes() *menu.Menu {
	sold := func(price float64) []menu.Sold {
		return []menu.Sold{{CloudRegion: "here", Distance: 1, Price: price}}
	}
	return &menu.Menu{Version: menu.Version, Types: []menu.Type{
		{Name: "two", Memory: 2 * managedRegion, Cores: 4, Sold: sold(0.1)},
		{Name: "four", Memory: 4 * managedRegion, Cores: 4, Sold: sold(0.5)},
	}}
}

// A cache of two VMs leaves both of them for one that has become cheaper, while it is
// used, and they are given back (R29).
func TestCheaperVM(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	vms, err := manager.NewInProcessAllocator(manager.InProcessOptions{Menu: twoSizes(), Market: menu.Options{Step: -1}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	e, err := manager.Embed(t.Context(), manager.EmbedOptions{
		Allocator: vms, Economy: manager.Economy{Every: time.Millisecond, Dwell: time.Millisecond}, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &managed{Embedded: e, vms: vms, events: make(chan Event, 256)}
	cache := m.create(t, m, Config{Transport: "mem", Configuration: configurations[0]})
	during(t, cache, int(cache.Capacity()), func() {
		first, second := cache.Regions()[0].VM, cache.Regions()[2].VM
		if first == second {
			t.Fatalf("%+v: want two VMs", cache.Regions())
		}
		if err := vms.Market().Change([]menu.Kind{{Type: "four", Distance: 1}}, menu.Change{Price: new(plan.Dollars(0.15))}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if left := m.expect(t, VMLeft); left.VM != first && left.VM != second {
				t.Errorf("%+v, want one of %s and %s", left, first, second)
			}
		}
		m.gone(t, first)
		m.gone(t, second)
	})
	m.agree(t, cache)
	if known := m.known(t); len(known.Vms) != 1 || known.Caches[0].PriceMicros != int64(plan.Dollars(0.15)) {
		t.Errorf("the cache has %v for %v", known.Vms, plan.Price(known.Caches[0].PriceMicros))
	}
}
