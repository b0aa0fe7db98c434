package manager

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/model"
)

// serveDistances starts a manager whose servers are registered by what it returns, with
// their distances.
func serveDistances(t *testing.T) (*Manager, Client, func(id string, distance uint32)) {
	m, client := serve(t, Options{Transport: "mem", Models: []*model.Model{testModel(t, "mem")}, SLOMargin: -1})
	return m, client, func(id string, distance uint32) {
		v := testVM(id, 1<<30, 4, "http://127.0.0.1:1")
		v.Transport, v.Distance = "mem", distance
		if err := m.catalog.register(v, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
}

// R28: an SLO that the VMs which a cache has are too far away for is met by nearer ones,
// to which the whole cache moves, and which it is held to from then on.
func TestReallocateNearer(t *testing.T) {
	m, client, register := serveDistances(t)
	register("far", 3)
	cache, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{Capacity: 1 << 20, Slo: slo(20, 0, 64)}))
	if err != nil {
		t.Fatal(err)
	}
	register("near", 1)
	id, tight := cache.Msg.GetCacheId(), slo(6, 0, 64)
	more, err := client.Reallocate(testContext(t), connect.NewRequest(&managerv1.ReallocateRequest{CacheId: id, Regions: 1, Slo: tight, AvoidVms: []string{"far"}}))
	if err != nil {
		t.Fatal(err)
	}
	share := more.Msg.GetShares()[0]
	if share.GetVm().GetId() != "near" {
		t.Fatalf("moved to %v", share.GetVm())
	}
	_, err = client.Settle(testContext(t), connect.NewRequest(&managerv1.SettleRequest{
		CacheId: id, Capacity: 1 << 20, Slo: tight, Configuration: more.Msg.GetConfiguration(),
		Shares: []*managerv1.SettledShare{{Grant: share.GetGrant(), Regions: 1}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := m.catalog.describeCache(id); got.GetCache().GetDistance() != 1 {
		t.Errorf("cache at distance %d after it has moved to 1", got.GetCache().GetDistance())
	}
}
