package manager

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
)

// VMs of a type that is reclaimed soon are left, even if it is the cheapest, and not taken
// again (R28).
func TestBriefVMs(t *testing.T) {
	m, err := menu.Parse([]byte(`{"version": 1, "types": [{"name": "v", "memory": "4MiB", "sold": [
		{"cloud_region": "here", "distance": 1, "price": 1, "spot": {"price": 0.1, "lowest": 0.1, "highest": 0.1, "notice": "1h"}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := allocator.NewInProcess(allocator.InProcessOptions{Menu: &m, Market: menu.Options{Step: -1}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	p := allocator.NewPredictor()
	c := &handClock{now: time.Unix(1_000_000, 0)}
	mgr, client := serve(t, Options{Allocator: a, Predictor: p, Economy: Economy{Every: -1}, Lease: -1, now: c.read})
	id := allocateSpot(t, client)
	reclaimed := func(n int) {
		for range n {
			p.Observe(menu.Kind{Type: "v", CloudRegion: "here", Distance: 1, Spot: true}, time.Second, true)
		}
		mgr.led().considerMoves(testContext(t))
	}
	c.advance(time.Hour)
	const enoughReclaims = 3 // the minimum for a prediction
	reclaimed(enoughReclaims)
	if events := describeOne(t, client, id).GetEvents(); len(events) != 0 {
		t.Fatalf("events %v: the cache's own VM has lived for an hour", events)
	}
	reclaimed(100 * enoughReclaims)
	before := describeOne(t, client, id)
	events := before.GetEvents()
	if len(events) != 1 || len(events[0].GetVmIds()) != 1 {
		t.Fatalf("events %v: want one that names the VM", events)
	}
	after := reallocate(t, client, id, events[0].GetVmIds())
	if vm := after.GetVm(); vm.GetSpot() || vm.GetType() != "v" {
		t.Errorf("VM %v: want one that stays", vm)
	}
}

// allocateSpot allocates a cache of 4 MiB with a duration.
func allocateSpot(t *testing.T, client access.Client) string {
	t.Helper()
	r, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 4 << 20, RegionSize: 1 << 20, DurationSeconds: 3600}))
	if err != nil {
		t.Fatal(err)
	}
	if vm := r.Msg.GetGrants()[0].GetVm(); !vm.GetSpot() {
		t.Fatalf("VM %v: want a spot VM", vm)
	}
	return r.Msg.GetCacheId()
}

func describeOne(t *testing.T, client access.Client, id string) *managerv1.DescribeCacheResponse {
	t.Helper()
	r, err := client.DescribeCache(testContext(t), connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: id}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg
}

// reallocate leaves VMs like a cache that was told to, and returns the first grant that
// replaces theirs.
func reallocate(t *testing.T, client access.Client, id string, vms []string) *managerv1.Grant {
	t.Helper()
	r, err := client.Reallocate(testContext(t), connect.NewRequest(&managerv1.ReallocateRequest{Change: nextChange(), CacheId: id, Regions: 4, AvoidVms: vms, Voluntary: true}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg.GetGrants()[0]
}
