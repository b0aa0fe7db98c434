package manager

import (
	"context"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
)

// distant is an allocator whose near VMs turn out to be far away until it knows better.
type distant struct {
	*allocator.InProcess
	host allocator.Host

	mu       sync.Mutex // guards the fields below
	knows    bool
	launched []int // distances planned
}

func (a *distant) Attach(h allocator.Host) {
	a.host = h
	a.InProcess.Attach(h)
}

func (a *distant) Offers(context.Context, string, string) ([]plan.Offer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	seems := 1
	if a.knows {
		seems = 3
	}
	return []plan.Offer{
		{Type: "doubtful", Memory: 1 << 20, Cores: 4, Distance: seems, Price: 10, Available: -1},
		{Type: "near", Memory: 1 << 20, Cores: 4, Distance: 1, Price: 20, Available: -1},
	}, nil
}

func (a *distant) Launch(ctx context.Context, spec allocator.VMSpec) error {
	a.mu.Lock()
	a.launched = append(a.launched, spec.Kind.Distance)
	doubtful := spec.Kind.Type == "doubtful"
	a.knows = a.knows || doubtful
	a.mu.Unlock()
	if doubtful {
		a.host.Placed(spec.ID, allocator.Place{Machine: "another room", Distance: 3})
	}
	return a.InProcess.Launch(ctx, spec)
}

// A launched VM at a distance where the SLO is not met is replaced by another choice; without
// an SLO it serves, and its real distance is known.
func TestPlacedTooFar(t *testing.T) {
	for _, c := range []struct {
		name     string
		latency  float64
		launches int
		distance uint32
	}{{"tight", 6, 2, 1}, {"loose", 20, 1, 3}} {
		t.Run(c.name, func(t *testing.T) {
			inner, err := allocator.NewInProcess(allocator.InProcessOptions{Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			a := &distant{InProcess: inner}
			m, client := serve(t, Options{Allocator: a, Models: []*model.Model{testModel(t, "mem")}, SLOMargin: -1})
			cache, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, RegionSize: 1 << 20, Slo: slo(c.latency, 0, 64)}))
			if err != nil {
				t.Fatal(err)
			}
			if got := cache.Msg.GetGrants()[0].GetVm().GetDistance(); got != c.distance || len(a.launched) != c.launches {
				t.Errorf("VM at distance %d after launches at %v: want distance %d, %d launches", got, a.launched, c.distance, c.launches)
			}
			if got, _ := m.led().state.describeCache(cache.Msg.GetCacheId()); got.GetCache().GetDistance() != c.distance {
				t.Errorf("cache at distance %d: want %d", got.GetCache().GetDistance(), c.distance)
			}
			m.led().rest(t)
			if _, vms := m.led().state.size(); vms != 1 {
				t.Errorf("%d VMs, with one in use", vms)
			}
		})
	}
}

// queued is an allocator whose VMs wait and never start.
type queued struct {
	*distant
	launches chan string
}

func (a *queued) Launch(_ context.Context, spec allocator.VMSpec) error {
	a.host.Waiting(spec.ID, "no room")
	a.launches <- spec.ID
	return nil
}

// A VM that waits does not run into the launch timeout; one that starts after that does.
func TestWaitingVM(t *testing.T) {
	inner, err := allocator.NewInProcess(allocator.InProcessOptions{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	a := &queued{&distant{InProcess: inner}, make(chan string, 1)}
	const timeout = 20 * time.Millisecond
	m, client := serve(t, Options{Allocator: a, LaunchTimeout: timeout})
	failed := make(chan error, 1)
	go func() {
		_, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: 1 << 20, RegionSize: 1 << 20}))
		failed <- err
	}()
	id := testrun.Receive(t, "the VM is launched", a.launches)
	m.led().state.mu.Lock()
	v := m.led().state.vms[id]
	v.entered = v.entered.Add(-time.Hour)
	m.led().state.mu.Unlock()
	m.led().rest(t)
	if late := m.led().state.lateBy(v, timeout); late != -timeout {
		t.Fatalf("a VM that waits is late by %v", late)
	}
	a.host.Waiting(id, "")
	if err := testrun.Receive(t, "Allocate ends", failed); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Fatalf("error %v: want Unavailable", err)
	}
}

// The price of a VM changes with its type's, also where it is at another distance than the type is
// offered at, unless the type has several prices.
func TestRepriceElsewhere(t *testing.T) {
	v := &vm{id: "vm-a", launched: true, VM: node.VM{Type: "pool", Distance: 5, Price: 10}}
	c := &state{vms: map[string]*vm{v.id: v}}
	near, mid := plan.Offer{Type: "pool", Distance: 1, Price: 20}, plan.Offer{Type: "pool", Distance: 3, Price: 30}
	for _, s := range []struct {
		offers []plan.Offer
		want   plan.Price
	}{{[]plan.Offer{near}, 20}, {[]plan.Offer{near, mid}, 20}, {[]plan.Offer{mid}, 30}, {nil, 30}} {
		if c.reprice(supply{offers: s.offers}.prices()); v.Price != s.want {
			t.Errorf("price %v with offers %v: want %v", v.Price, s.offers, s.want)
		}
	}
	// The price of a cache's VM is that of the offers for the cache's client.
	ca, other := &cache{grants: []*grant{{vm: v}}}, &cache{}
	v.held = map[*grant]struct{}{ca.grants[0]: {}}
	dear, cheap := supply{offers: []plan.Offer{near}}, supply{offers: []plan.Offer{mid}}
	for _, s := range []struct {
		what  string
		price func()
		want  plan.Price
	}{
		{"as offered to others", func() { c.reprice(dear.prices()) }, 30},
		{"of another client's cache", func() { c.view(other, dear, dear.prices(), Economy{}) }, 30},
		{"of its own", func() { c.view(ca, dear, dear.prices(), Economy{}) }, 20},
		{"of its own", func() { c.view(ca, cheap, cheap.prices(), Economy{}) }, 30},
	} {
		if s.price(); v.Price != s.want {
			t.Errorf("%s: price %v, want %v", s.what, v.Price, s.want)
		}
	}
}
