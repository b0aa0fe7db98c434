package redytier

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/memhttp"
	"github.com/redykv/redykv/manager"
)

// A Create that fails undoes everything (R3).
func TestCreateFailsWithoutEffect(t *testing.T) {
	const capacity, regionSize = 10 * 16 << 10, 16 << 10
	for name, tc := range map[string]struct {
		cfg   Config
		spoil func(*managerv1.AllocateResponse)
	}{
		"too little memory": {cfg: Config{Capacity: 1 << 30}},
		"bad configuration": {spoil: func(m *managerv1.AllocateResponse) { m.Configuration.BatchSize = 0 }},
		"no configuration":  {spoil: func(m *managerv1.AllocateResponse) { m.Configuration = nil }},
		"no cache ID":       {spoil: func(m *managerv1.AllocateResponse) { m.CacheId = "" }},
		"bad region size":   {spoil: func(m *managerv1.AllocateResponse) { m.RegionSize = 1000 }},
		"huge region size":  {spoil: func(m *managerv1.AllocateResponse) { m.RegionSize = 1 << 63 }},
		"no VMs":            {spoil: func(m *managerv1.AllocateResponse) { m.Grants = nil }},
		"share without VM":  {spoil: func(m *managerv1.AllocateResponse) { m.Grants[1].Vm = nil }},
		"too few regions":   {spoil: func(m *managerv1.AllocateResponse) { m.Grants[1].Regions-- }},
		"too many regions":  {spoil: func(m *managerv1.AllocateResponse) { m.Grants[1].Regions++ }},
		"second VM unreachable": {spoil: func(m *managerv1.AllocateResponse) {
			m.Grants[1].Vm = &managerv1.Vm{Id: "gone", ControlUrl: "http://127.0.0.1:1"}
		}},
		"same grant twice": {spoil: func(m *managerv1.AllocateResponse) { m.Grants[1] = m.Grants[0] }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "mem", 2, 1<<20)
			c.spoil = tc.spoil
			cfg := tc.cfg
			if cfg.Capacity == 0 {
				cfg = Config{Capacity: capacity, RegionSize: regionSize}
			}
			cfg.Logger = slog.New(slog.DiscardHandler)
			cache, err := Create(t.Context(), c.client, cfg)
			if err == nil {
				t.Error(cache.Delete(context.Background()))
				t.Fatal("Create succeeded")
			}
			t.Log(err)
			c.nothingLeft(t)
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no capacity":       {},
		"negative capacity": {Capacity: -1},
		"huge capacity":     {Capacity: 1 << 60},
		"region size":       {Capacity: 1 << 20, RegionSize: 5000},
		"tiny regions":      {Capacity: 1 << 20, RegionSize: 1 << 10},
		"too many regions":  {Capacity: 1 << 40, RegionSize: MinRegionSize},
		"duration":          {Capacity: 1 << 20, Duration: -1},
		"SLO":               {Capacity: 1 << 20, SLO: SLO{MinThroughput: -1}},
		"s > c":             {Capacity: 1 << 20, Configuration: Configuration{ClientThreads: 1, ServerThreads: 2, BatchSize: 2, QueueDepth: 1}},
		"s = 0, b > 1":      {Capacity: 1 << 20, Configuration: Configuration{ClientThreads: 1, BatchSize: 2, QueueDepth: 1}},
		"no batch":          {Capacity: 1 << 20, Configuration: Configuration{ClientThreads: 1, QueueDepth: 1}},
		"no depth":          {Capacity: 1 << 20, Configuration: Configuration{ClientThreads: 1, BatchSize: 1}},
		"bad network":       {Capacity: 1 << 20, Net: "pigeons"},
		"huge batch":        {Capacity: 1 << 20, Configuration: Configuration{ClientThreads: 1, ServerThreads: 1, BatchSize: 1 << 20, QueueDepth: 1}},
	} {
		if _, err := Create(t.Context(), nil, cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := Open(t.Context(), nil, cfg); err == nil {
			t.Errorf("%s: accepted for a device", name)
		}
	}
}

// A cache without a configured region size gets smaller regions if no VM has room for one of
// the default size.
func TestSmallerRegions(t *testing.T) {
	mgr, err := manager.Embed(t.Context(), manager.EmbedOptions{VMMemory: 3 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mgr.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := Config{Capacity: 16 << 20, Logger: slog.New(slog.DiscardHandler)}
	cache, err := Create(t.Context(), mgr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := cache.RegionSize(); got != 2<<20 {
		t.Errorf("regions of %d", got)
	}
	if err := cache.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	cfg.RegionSize = 4 << 20
	if _, err := Create(t.Context(), mgr, cfg); err == nil {
		t.Error("regions of a size that no VM holds")
	}
}

func TestDefaultRegionSize(t *testing.T) {
	for capacity, want := range map[int64]int64{
		MinRegionSize: MinRegionSize,
		100 << 10:     16 << 10,
		1 << 30:       256 << 20,
		1<<30 - 1:     128 << 20,
		4 << 30:       1 << 30,
		1 << 40:       1 << 30,
	} {
		if got := defaultRegionSize(capacity); got != want {
			t.Errorf("capacity %d: regions of %d, want %d", capacity, got, want)
		}
	}
}

// A cache is deleted while its manager does not answer and half of its servers hang. The others are
// told, also the one that a region has left and that still had its bytes.
func TestDeleteBesideServersThatHang(t *testing.T) {
	const region = 16 << 10
	onNotice(t, scheduleMenu(region), func(t *testing.T, n *noticed) {
		cache, err := Create(t.Context(), n.client, n.config(Config{Capacity: 12 * region, RegionSize: region, Configuration: oneSided}))
		if err != nil {
			t.Fatal(err)
		}
		id, regions := cache.ID(), cache.Regions()
		left := regions[10].VM
		p := newPump(t, cache, 1)
		p.do(false, make([]byte, 1), regions[10].From, func(c device.Completion) { // so that the memory is not returned
			if c.Err != nil && !errors.Is(c.Err, ErrDeleted) { // Delete may come before its completion is polled
				t.Error(c.Err)
			}
		})
		if err := p.s.Submit(); err != nil {
			t.Fatal(err)
		}
		if err := cache.Migrate(t.Context(), left); err == nil {
			t.Error("memory is returned while it is read")
		}
		var hung []string
		for _, r := range regions[:6] {
			hung = append(hung, r.VM)
		}
		var silence sync.WaitGroup
		silence.Go(func() { n.disturb(memhttp.Refused, -1, between(clientParty, managerHost), time.Minute) })
		silence.Go(func() {
			n.disturb(memhttp.Dropped, -1, func(c memhttp.Call) bool {
				return c.From == clientParty && slices.Contains(hung, c.To)
			}, time.Minute)
		})
		synctest.Wait()
		deleted := make(chan error, 1)
		go func() { deleted <- cache.Delete(t.Context()) }()
		p.drain()
		p.close()
		if err := <-deleted; err == nil {
			t.Error("the manager does not answer, and Delete succeeds")
		}
		lent := n.cloud.lent()
		if lent[left] == nil {
			t.Error("the VM that was left is gone")
		}
		for vm, caches := range lent {
			if is, want := caches[id] > 0, slices.Contains(hung, vm); is != want {
				t.Errorf("VM %s lends memory: %v, want %v", vm, is, want)
			}
		}
		silence.Wait()
		if err := cache.Delete(t.Context()); err != nil && !errors.Is(err, ErrDeleted) {
			t.Error(err)
		}
	})
}
