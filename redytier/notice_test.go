package redytier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/memhttp"
	"github.com/redykv/redykv/manager/menu"
)

// This file tests that a notice of 30 s is enough while something else changes the cache that
// would take longer, on virtual time: copies are as slow as their limits say.

const shortNotice = 30 * time.Second

// noticed is a world whose cache tells what happens.
type noticed struct {
	*scheduleWorld
	events chan Event
}

// onNotice runs a test in a bubble of virtual time.
func onNotice(t *testing.T, vms menu.Menu, test func(t *testing.T, n *noticed)) {
	synctest.Test(t, func(t *testing.T) {
		n := &noticed{scheduleWorld: newScheduleWorld(t, vms, scheduleModels(t)), events: make(chan Event, 256)}
		test(t, n)
		n.close()
	})
}

func (n *noticed) config(cfg Config) Config {
	cfg.OnEvent = func(e Event) { n.events <- e }
	return n.scheduleWorld.config(cfg)
}

// leftInTime reclaims a VM, and returns when the cache has left it. No memory is lost before.
func (n *noticed) leftInTime(t *testing.T, vm string) {
	t.Helper()
	deadline := time.Now().Add(shortNotice)
	n.cloud.reclaim(vm, shortNotice)
	for {
		select {
		case e := <-n.events:
			switch {
			case e.Kind == VMLost || e.Kind == DataLost:
				t.Errorf("%v before the deadline: %+v", time.Until(deadline), e)
				return
			case e.Kind == VMLeft && e.VM == vm:
				return
			}
		case <-time.After(time.Until(deadline)):
			t.Error("the VM is not left when its notice ends")
			return
		}
	}
}

// nothingLost checks that no event tells of a loss.
func (n *noticed) nothingLost(t *testing.T) {
	t.Helper()
	for len(n.events) > 0 {
		if e := <-n.events; e.Kind == VMLost || e.Kind == DataLost {
			t.Errorf("%+v", e)
		}
	}
}

// complete makes a call of the callback API and returns when it has ended.
func complete(t *testing.T, do func(ctx context.Context, buf []byte, addr int64, cb Callback) error, buf []byte, addr int64) {
	t.Helper()
	ended := make(chan error, 1)
	if err := do(t.Context(), buf, addr, func(_ int, err error) { ended <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%d bytes at %d: %v", len(buf), addr, err)
	}
}

// markRegions writes the number of each region at its end.
func markRegions(t *testing.T, c *Cache) {
	t.Helper()
	for i, r := range c.Regions() {
		complete(t, c.Write, fmt.Appendf(nil, "region %4d", i), r.To-11)
	}
}

// checkMarks checks what markRegions has written.
func checkMarks(t *testing.T, c *Cache) {
	t.Helper()
	for i, r := range c.Regions() {
		got, want := make([]byte, 11), fmt.Sprintf("region %4d", i)
		if complete(t, c.Read, got, r.To-11); string(got) != want {
			t.Errorf("region %d holds %q", i, got)
		}
	}
}

// sleepUntil sleeps until a condition holds, for a while of virtual time.
func sleepUntil(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// The application moves 8 GiB away from a VM, which takes 32 s, when another VM is reclaimed.
// The move ends before much of the memory is touched.
func TestNoticeDuringALargeMove(t *testing.T) {
	const (
		region = 64 << 20
		large  = 8 << 30
		rate   = 256 << 20
	)
	vms := menu.Menu{Version: menu.Version, Types: []menu.Type{scheduleType("large", large, 0.3), scheduleType("small", region, 0.1)}}
	onNotice(t, vms, func(t *testing.T, n *noticed) {
		cache, err := Create(t.Context(), n.client, n.config(Config{
			Capacity: large + region, RegionSize: region, Configuration: oneSided, Migration: Migration{BytesPerSecond: rate},
		}))
		if err != nil {
			t.Fatal(err)
		}
		markRegions(t, cache)
		regions := cache.Regions()
		last := len(regions) - 1
		if regions[0].VM != regions[last-1].VM || regions[0].VM == regions[last].VM {
			t.Fatalf("%+v: want two VMs, the first with 8 GiB", regions)
		}
		ctx, cancel := context.WithCancel(t.Context())
		moved := make(chan error, 1)
		began := time.Now()
		go func() { moved <- cache.Migrate(ctx, regions[0].VM) }()
		moving := func(r RegionInfo) bool { return r.State == Copying }
		sleepUntil(t, "the move has begun", func() bool { return moving(cache.Regions()[1]) })
		n.leftInTime(t, regions[last].VM)
		if took := time.Since(began); took >= shortNotice {
			t.Errorf("left %v after the move began: it was not interrupted", took)
		}
		sleepUntil(t, "the move goes on", func() bool { return slices.ContainsFunc(cache.Regions()[:last], moving) })
		cancel()
		if err := <-moved; !errors.Is(err, context.Canceled) {
			t.Errorf("Migrate: %v", err)
		}
		time.Sleep(shortNotice) // the VM that was left is gone
		checkMarks(t, cache)
		n.nothingLost(t)
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A Reshape to another SLO, which copies the whole cache in 40 s, is undone when a VM is
// reclaimed. Then it is made.
func TestNoticeDuringALongReshape(t *testing.T) {
	const region = 64 << 10
	onNotice(t, scheduleMenu(region), func(t *testing.T, n *noticed) {
		cache, err := Create(t.Context(), n.client, n.config(Config{
			Capacity: 8 * region, RegionSize: region, Configuration: oneSided, Migration: Migration{BytesPerSecond: region / 5},
		}))
		if err != nil {
			t.Fatal(err)
		}
		markRegions(t, cache)
		first := cache.Regions()
		reshaped := make(chan error, 1)
		go func() { reshaped <- cache.Reshape(t.Context(), 8*region, scheduleSLOs[1]) }()
		// Regions that are copied have mirrors, which are given up.
		sleepUntil(t, "the Reshape copies the second half", func() bool { return cache.Regions()[4].State == Copying })
		n.leftInTime(t, first[0].VM)
		if err := <-reshaped; err != nil {
			t.Errorf("Reshape: %v", err)
		}
		if cache.Configuration().ServerThreads == 0 {
			t.Errorf("configuration %+v after a Reshape for throughput", cache.Configuration())
		}
		time.Sleep(shortNotice)
		checkMarks(t, cache)
		n.nothingLost(t)
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A VM is reclaimed while the memory of another, which was lost, is filled from the next tier
// for a minute.
func TestNoticeDuringARefill(t *testing.T) {
	const (
		region  = 256 << 10
		regions = 8
		page    = 64 << 10
	)
	onNotice(t, scheduleMenu(region), func(t *testing.T, n *noticed) {
		d, err := Open(t.Context(), n.client, n.config(Config{
			Capacity: regions * region, RegionSize: region, Configuration: oneSided, Migration: Migration{Parallel: 1, BytesPerSecond: region / 5},
		}))
		if err != nil {
			t.Fatal(err)
		}
		lost := int64(2 * region) // all VMs have two regions
		tiered := device.NewTieredWith(device.TieredOptions{
			Logger: slog.New(slog.DiscardHandler), RefillRate: lost / 60,
		}, d, device.NewMemory())
		if err := tiered.Start(0); err != nil {
			t.Fatal(err)
		}
		p := devicetest.NewPump(t, tiered, 4)
		content := func(at int64) []byte { return bytes.Repeat([]byte{byte(1 + at/page)}, page) }
		for at := int64(0); at < regions*region; at += page {
			p.Write(content(at), at, nil)
		}
		p.Drain()
		vms := d.Cache().Regions()
		n.cloud.kill(vms[0].VM)
		n.cloud.manager().Failed(vms[0].VM, "killed")
		refilled := func() uint64 { return tiered.Metrics()[0].Refilled }
		sleepUntil(t, "the refill begins", func() bool { return refilled() > 0 })
		for len(n.events) > 0 {
			if e := <-n.events; e.Kind == VMLost && e.VM != vms[0].VM {
				t.Errorf("%+v", e)
			}
		}
		n.leftInTime(t, vms[2].VM)
		if missing := tiered.Metrics()[0].Missing; missing == 0 {
			t.Error("the refill ended before the VM was left")
		}
		sleepUntil(t, "the refill ends", func() bool { return tiered.Metrics()[0].Missing == 0 })
		time.Sleep(shortNotice)
		n.nothingLost(t)
		if slices.ContainsFunc(d.Cache().Regions(), func(r RegionInfo) bool { return r.VM == vms[2].VM || r.State != Stable }) {
			t.Errorf("%+v", d.Cache().Regions())
		}
		if got := refilled(); got != uint64(lost) {
			t.Errorf("%d bytes are refilled, %d were lost with the VM that failed", got, lost)
		}
		direct := devicetest.NewPump(t, d, 4) // no other tier answers
		for at := int64(0); at < regions*region; at += page {
			direct.Read(make([]byte, page), at, content(at))
		}
		direct.Close()
		p.Close()
		if err := tiered.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A VM is left within its notice although more regions move at a time than a server pulls.
func TestNoticeWithManyMovesAtOnce(t *testing.T) {
	const (
		region  = 1 << 20
		regions = 40
	)
	vms := menu.Menu{Version: menu.Version, Types: []menu.Type{scheduleType("large", regions*region, 0.3)}}
	onNotice(t, vms, func(t *testing.T, n *noticed) {
		cache, err := Create(t.Context(), n.client, n.config(Config{
			Capacity: regions * region, RegionSize: region, Configuration: oneSided,
			Migration: Migration{Parallel: regions, BytesPerSecond: region / 5},
		}))
		if err != nil {
			t.Fatal(err)
		}
		markRegions(t, cache)
		n.leftInTime(t, cache.Regions()[0].VM)
		checkMarks(t, cache)
		n.nothingLost(t)
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The memory of a VM is lost and not replaced at once, and the application moves regions for a
// minute, when another VM is lost. The memory of both is replaced before the move ends.
func TestSecondLossDuringALongMove(t *testing.T) {
	const region = 64 << 10
	onNotice(t, scheduleMenu(region), func(t *testing.T, n *noticed) {
		cache, err := Create(t.Context(), n.client, n.config(Config{
			Capacity: 8 * region, RegionSize: region, Configuration: oneSided, Migration: Migration{BytesPerSecond: region / 30},
		}))
		if err != nil {
			t.Fatal(err)
		}
		vms := cache.Regions() // two of each
		var refusing sync.WaitGroup
		refusing.Go(func() {
			n.disturb(memhttp.Refused, 1, func(c memhttp.Call) bool { return strings.HasSuffix(c.Path, "/Reallocate") }, time.Second)
		})
		defer refusing.Wait()
		lose := func(vm string) {
			n.cloud.kill(vm)
			n.cloud.manager().Failed(vm, "killed")
		}
		synctest.Wait()
		lose(vms[0].VM)
		sleepUntil(t, "an attempt to replace the first loss fails", func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.faults[0].left == 0
		})
		moved := make(chan error, 1)
		go func() { moved <- cache.Migrate(t.Context(), vms[2].VM) }()
		sleepUntil(t, "the move has begun", func() bool { return cache.Regions()[2].State == Copying })
		if state := cache.Regions()[0].State; state != Lost {
			t.Fatalf("the first loss is %v", state)
		}
		lose(vms[4].VM)
		sleepUntil(t, "the second loss is known", func() bool { return cache.table.Load().regions.at(4).epoch > 0 })
		sleepUntil(t, "the memory is replaced", func() bool { return cache.Err() == nil })
		if len(moved) > 0 || cache.Regions()[3].VM != vms[3].VM {
			t.Error("the memory is replaced after the move")
		}
		if err := <-moved; err != nil {
			t.Errorf("Migrate: %v", err)
		}
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Two VMs are reclaimed at once. The one that is left first does not take its memory back, and the
// manager is not told, which delays the leaving of the other one by no more than 100 ms.
func TestNoticesBesideAServerThatHangs(t *testing.T) {
	const region = 64 << 10
	onNotice(t, scheduleMenu(region), func(t *testing.T, n *noticed) {
		cache, err := Create(t.Context(), n.client, n.config(Config{
			Capacity: 8 * region, RegionSize: region, Configuration: oneSided, Migration: Migration{BytesPerSecond: region / 6}, // 12 s for a VM
		}))
		if err != nil {
			t.Fatal(err)
		}
		markRegions(t, cache)
		vms := []string{cache.Regions()[0].VM, cache.Regions()[2].VM}
		var hanging sync.WaitGroup
		hanging.Go(func() {
			n.disturb(memhttp.Dropped, -1, func(c memhttp.Call) bool {
				return c.From == clientParty && (strings.HasSuffix(c.Path, "/Disconnect") || strings.HasSuffix(c.Path, "/Settle"))
			}, shortNotice)
		})
		synctest.Wait()
		for _, vm := range vms {
			n.cloud.reclaim(vm, shortNotice)
		}
		time.Sleep(shortNotice + time.Second)
		hanging.Wait()
		n.nothingLost(t)
		checkMarks(t, cache)
		sleepUntil(t, "the manager is told", func() bool { return !cache.unsettled.Load() })
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
