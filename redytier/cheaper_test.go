package redytier

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// twoSizes is a menu of VMs with memory for two and for four regions.
func twoSizes() *menu.Menu {
	sold := func(price float64) []menu.Sold {
		return []menu.Sold{{CloudRegion: "here", Distance: 1, Price: price}}
	}
	return &menu.Menu{Version: menu.Version, Types: []menu.Type{
		{Name: "two", Memory: 2 * managedRegion, Cores: 4, Sold: sold(0.1)},
		{Name: "four", Memory: 4 * managedRegion, Cores: 4, Sold: sold(0.5)},
	}}
}

// A cache on two VMs leaves both for one that has become cheaper, while it is used. The two
// VMs are released (R29).
func TestCheaperVM(t *testing.T) {
	m := sizesWith(t, 0.5, manager.Economy{Every: time.Millisecond, Dwell: time.Millisecond})
	cache := m.create(t, m, Config{Transport: "mem", Configuration: configurations[0]})
	during(t, cache, int(cache.Capacity()), func() {
		first, second := cache.Regions()[0].VM, cache.Regions()[2].VM
		if first == second {
			t.Fatalf("%+v: want two VMs", cache.Regions())
		}
		m.price(t, 0.15)
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

// sizes returns a manager of VMs of twoSizes, the larger at price four. It proposes no moves
// to cheaper VMs.
func sizes(t *testing.T, four float64) *managed {
	t.Helper()
	return sizesWith(t, four, manager.Economy{Every: -1})
}

// sizesWith is sizes with proposals of moves as economy configures them.
func sizesWith(t *testing.T, four float64, economy manager.Economy) *managed {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	vms, err := allocator.NewInProcess(allocator.InProcessOptions{Menu: twoSizes(), Market: menu.Options{Step: -1}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := vms.Market().Change([]menu.Kind{{Type: "four", Distance: 1}}, menu.Change{Price: new(plan.Dollars(four))}); err != nil {
		t.Fatal(err)
	}
	e, err := manager.Embed(t.Context(), manager.EmbedOptions{Allocator: vms, Economy: economy, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return &managed{Embedded: e, vms: vms, events: make(chan Event, 256)}
}

// price sets the price of the larger VMs of sizes.
func (m *managed) price(t *testing.T, four float64) {
	t.Helper()
	err := m.vms.(*allocator.InProcess).Market().Change([]menu.Kind{{Type: "four", Distance: 1}}, menu.Change{Price: new(plan.Dollars(four))})
	if err != nil {
		t.Fatal(err)
	}
}

// A cache that grows gets one more VM, or moves to one larger VM for all of it with the same
// configuration if that saves enough (R74).
func TestGrowToOneLargerVM(t *testing.T) {
	const before, after = 2 * managedRegion, 4*managedRegion - 100
	for price, moves := range map[float64]bool{0.15: true, 0.19: false} { // another small one costs 0.1 more
		for _, configuration := range configurations {
			m := sizes(t, price)
			cache := m.create(t, m, Config{Transport: "mem", Configuration: configuration, Capacity: before})
			old := cache.Regions()[0].VM
			during(t, cache, before, func() {
				if err := cache.Reshape(t.Context(), after, SLO{}); err != nil {
					t.Fatal(err)
				}
			})
			vms := map[string]bool{}
			for _, r := range cache.Regions() {
				vms[r.VM] = true
			}
			if want := map[bool]int{true: 1, false: 2}[moves]; len(vms) != want || vms[old] == moves || cache.Capacity() != after {
				t.Errorf("at %v: %d bytes on %v, at first on %s", price, cache.Capacity(), vms, old)
			}
			if cache.Configuration() != configuration {
				t.Errorf("configuration %+v, want %+v", cache.Configuration(), configuration)
			}
			if rest := bytes.Trim(content(t, cache)[before:], "\x00"); len(rest) > 0 {
				t.Errorf("%d bytes that were added are no zeros", len(rest))
			}
			m.agree(t, cache)
			if moves {
				m.gone(t, old)
			}
			if paid, want := m.known(t).Caches[0].PriceMicros, int64(plan.Dollars(map[bool]float64{true: price, false: 0.2}[moves])); paid != want {
				t.Errorf("the cache costs %v, want %v", plan.Price(paid), plan.Price(want))
			}
		}
	}
}

// If a cache cannot grow by moving, nothing changes (R76).
func TestGrowToOneLargerVMFails(t *testing.T) {
	m := sizes(t, 0.15)
	cache := m.create(t, m, Config{
		Transport: "shm", Configuration: configurations[1], Capacity: 2 * managedRegion, Migration: Migration{BytesPerSecond: 1 << 20},
	})
	old := cache.Regions()[0].VM
	during(t, cache, 2*managedRegion, func() {
		grown := make(chan error, 1)
		go func() { grown <- cache.Reshape(t.Context(), 4*managedRegion, SLO{}) }()
		target := ""
		testrun.Until(t, "the region has a target", func() bool { // the copying takes 62 ms
			target = cache.Regions()[0].Target
			return target != ""
		})
		if !m.vms.Kill(target) {
			t.Fatalf("no VM %s", target)
		}
		if err := testrun.Receive(t, "the reshape ends", grown); err == nil {
			t.Error("it has grown although its new VM is gone")
		}
	})
	if cache.Capacity() != 2*managedRegion || len(cache.Regions()) != 2 || cache.Regions()[0].VM != old || cache.Regions()[1].VM != old {
		t.Errorf("%d bytes, %+v", cache.Capacity(), cache.Regions())
	}
	m.agree(t, cache)
}
