package manager

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/plan"
)

// serveDistances starts a manager. It also returns a function that registers a server at a
// distance.
func serveDistances(t *testing.T) (*Manager, access.Client, func(id string, distance uint32)) {
	m, client := serve(t, Options{Transport: "mem", Models: []*model.Model{testModel(t, "mem")}, SLOMargin: -1})
	return m, client, func(id string, distance uint32) {
		v := testVM(id, 1<<30, 4, "http://127.0.0.1:1")
		v.Transport, v.Distance = "mem", distance
		if err := m.led().state.register(v, "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
}

// R28: if a cache's VMs are too far away for a new SLO, the whole cache moves to nearer
// ones, and its distance is then theirs.
func TestReallocateNearer(t *testing.T) {
	m, client, register := serveDistances(t)
	register("far", 3)
	cache, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, Slo: slo(20, 0, 64)}))
	if err != nil {
		t.Fatal(err)
	}
	register("near", 1)
	id, tight := cache.Msg.GetCacheId(), slo(6, 0, 64)
	more, err := client.Reallocate(testContext(t), connect.NewRequest(&managerv1.ReallocateRequest{Change: nextChange(), CacheId: id, Regions: 1, Slo: tight, AvoidVms: []string{"far"}}))
	if err != nil {
		t.Fatal(err)
	}
	grant := more.Msg.GetGrants()[0]
	if grant.GetVm().GetId() != "near" {
		t.Fatalf("moved to %v", grant.GetVm())
	}
	_, err = client.Settle(testContext(t), connect.NewRequest(&managerv1.SettleRequest{
		Change:  nextChange(),
		CacheId: id, Capacity: 1 << 20, Slo: tight, Configuration: more.Msg.GetConfiguration(),
		Grants: []*managerv1.SettledGrant{{Id: grant.GetId(), Regions: 1}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := m.led().state.describeCache(id); got.GetCache().GetDistance() != 1 {
		t.Errorf("cache at distance %d after it has moved to 1", got.GetCache().GetDistance())
	}
}

// R28: lost memory is replaced within the SLO's reach or, if nothing is so near, anywhere;
// then the decision says so. A voluntary move does not leave the SLO's reach.
func TestReallocateFarther(t *testing.T) {
	m, client, register := serveDistances(t)
	register("near", 1)
	allocate := func(slo *managerv1.Slo) string {
		cache, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, Slo: slo}))
		if err != nil {
			t.Fatal(err)
		}
		return cache.Msg.GetCacheId()
	}
	tight := allocate(slo(6, 0, 64))
	move := func(cache string, req *managerv1.ReallocateRequest) (string, error) {
		req.CacheId, req.Regions = cache, 1
		more, err := client.Reallocate(testContext(t), connect.NewRequest(req))
		if err != nil {
			return "", err
		}
		d, err := m.led().state.describeCache(cache)
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, decision := range d.GetDecisions() {
			for _, s := range decision.GetSites() {
				if decision.GetWhat() == "reallocate" && s.GetChosen() {
					said = s.GetReason()
				}
			}
		}
		return more.Msg.GetGrants()[0].GetVm().GetId() + ": " + said, nil
	}
	register("far", 3)
	got, err := move(tight, &managerv1.ReallocateRequest{Change: nextChange(), AvoidVms: []string{"near"}})
	if err != nil || !strings.HasPrefix(got, "far: ") || !strings.Contains(got, "SLO is not known to be met") {
		t.Fatalf("lost memory came back on %s, error %v", got, err)
	}
	// A second server at the same distance.
	register("other", 1)
	got, err = move(tight, &managerv1.ReallocateRequest{Change: nextChange(), AvoidVms: []string{"near"}})
	if err != nil || !strings.HasPrefix(got, "other: ") || strings.Contains(got, "SLO") {
		t.Fatalf("lost memory came back on %s, error %v", got, err)
	}
	// A saving is no reason to miss the SLO.
	if got, err := move(tight, &managerv1.ReallocateRequest{Change: nextChange(), AvoidVms: []string{"near", "other"}, Voluntary: true}); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatalf("moved for money to %s, error %v", got, err)
	}
	// A cache whose configuration is right for both distances goes where there is room.
	loose := allocate(slo(20, 0, 64))
	got, err = move(loose, &managerv1.ReallocateRequest{Change: nextChange(), AvoidVms: []string{"near", "other"}})
	if err != nil || !strings.HasPrefix(got, "far: ") || strings.Contains(got, "SLO") {
		t.Fatalf("lost memory came back on %s, error %v", got, err)
	}
}

// A reach restricts a demand to the distances at which its configuration is right.
func TestReach(t *testing.T) {
	mine, other := DefaultConfiguration(), &managerv1.Configuration{ClientThreads: 9}
	for _, tc := range []struct {
		name     string
		found    map[int]*managerv1.Configuration
		distance uint32
		want     []int  // distances with a configuration; nil: any
		at       uint32 // the demand's distance
	}{
		{"not known", map[int]*managerv1.Configuration{1: other}, 1, nil, 1},
		{"everywhere", map[int]*managerv1.Configuration{0: mine}, 1, nil, 1},
		{"no distance", map[int]*managerv1.Configuration{1: mine}, 0, nil, 0},
		{"near", map[int]*managerv1.Configuration{1: mine, 3: other}, 1, []int{1}, 1},
		{"farther", map[int]*managerv1.Configuration{1: mine, 2: mine}, 1, []int{1, 2}, 1},
		{"nearer than it needs", map[int]*managerv1.Configuration{1: other, 3: mine}, 1, []int{1, 3}, 1},
		{"too far away", map[int]*managerv1.Configuration{1: mine, 4: mine}, 3, []int{1, 4}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := reachOf(tc.found, mine).bound(demand{config: mine, distance: tc.distance})
			got := slices.Sorted(maps.Keys(d.configs))
			if d.distance != tc.at || !slices.Equal(got, tc.want) {
				t.Errorf("distance %d, configurations at %v: want %d, %v", d.distance, got, tc.at, tc.want)
			}
		})
	}
}

// A cache that had to move too far away for its SLO is told when a near server is available
// again, and moves back at any price.
func TestReturnsNearer(t *testing.T) {
	c := &handClock{now: time.Unix(1_000_000, 0)}
	m, client := serve(t, Options{Transport: "mem", Models: []*model.Model{testModel(t, "mem")}, SLOMargin: -1, Economy: Economy{Every: -1}, now: c.read})
	register := func(id string, distance uint32, price plan.Price) {
		v := testVM(id, 1<<30, 4, "http://127.0.0.1:1")
		v.Transport, v.Distance, v.Price = "mem", distance, price
		if err := m.led().state.register(v, "", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx := testContext(t)
	move := func(id string, avoid []string, voluntary bool) string {
		t.Helper()
		more, err := client.Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{Change: nextChange(), CacheId: id, Regions: 1, AvoidVms: avoid, Voluntary: voluntary}))
		if err != nil {
			t.Fatal(err)
		}
		grant := more.Msg.GetGrants()[0]
		if _, err := client.Settle(ctx, connect.NewRequest(&managerv1.SettleRequest{
			Change:  nextChange(),
			CacheId: id, Capacity: 1 << 20, Grants: []*managerv1.SettledGrant{{Id: grant.GetId(), Regions: 1}},
		})); err != nil {
			t.Fatal(err)
		}
		return grant.GetVm().GetId()
	}
	events := func(id string) []*managerv1.WatchResponse { return describeOne(t, client, id).GetEvents() }

	register("near", 1, 0)
	cache, err := client.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, Slo: slo(6, 0, 64), Client: &managerv1.Client{Cores: 2}}))
	if err != nil {
		t.Fatal(err)
	}
	id := cache.Msg.GetCacheId()
	register("far", 3, 0)
	m.led().fail("near", nil, "fire")
	if got := move(id, nil, false); got != "far" {
		t.Fatalf("lost memory came back on %s", got)
	}
	c.advance(time.Hour)
	m.led().considerMoves(ctx)
	if e := events(id); len(e) != 0 {
		t.Fatalf("there is nothing nearer, and it is told %v", e)
	}
	register("again", 1, plan.Dollars(5))
	m.led().considerMoves(ctx)
	told := events(id)
	if len(told) != 1 || told[0].GetKind() != managerv1.WatchResponse_KIND_VM_DEAR || !slices.Equal(told[0].GetVmIds(), []string{"far"}) ||
		!strings.Contains(told[0].GetReason(), "distance 1 again") {
		t.Fatalf("it is told %v", told)
	}
	if got := move(id, told[0].GetVmIds(), true); got != "again" {
		t.Fatalf("it moved to %s", got)
	}
	if d := describeOne(t, client, id).GetCache().GetDistance(); d != 1 {
		t.Errorf("it is at distance %d", d)
	}
	c.advance(time.Hour)
	m.led().considerMoves(ctx)
	if e := events(id); len(e) != 0 {
		t.Errorf("where its SLO is met, it is told %v", e)
	}
}
