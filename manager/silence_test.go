package manager

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/access"
)

// listening is a manager with a manual clock, whose servers send heartbeats on command.
type listening struct {
	t      *testing.T
	m      *Manager
	client access.Client
	clock  *handClock
}

const (
	testSilence = 5 * time.Hour // never due by the real clock
	testLease   = 8 * time.Hour
)

func listen(t *testing.T, servers int) *listening {
	l := &listening{t: t, clock: &handClock{now: time.Unix(1e9, 0)}}
	l.m, l.client = serve(t, Options{Transport: "mem", Silence: testSilence, Lease: testLease, now: l.clock.read})
	for i := range servers {
		await(t, announce(t, startNode(t, fmt.Sprintf("s%d", i)), l.client), "registration")
	}
	return l
}

// beat repeats: the servers send a heartbeat, and the clock advances by an hour.
func (l *listening) beat(hours int, servers ...string) {
	l.t.Helper()
	for range hours {
		for _, id := range servers {
			if _, err := l.client.Heartbeat(testContext(l.t), connect.NewRequest(&managerv1.HeartbeatRequest{VmId: id, Start: starts(l.m, id), FreeMemory: 8 << 20})); err != nil {
				l.t.Fatal(err)
			}
		}
		l.m.led().expireAt(l.clock.advance(time.Hour))
	}
}

func (l *listening) allocate() *managerv1.AllocateResponse {
	l.t.Helper()
	ca, err := allocateBytes(l.t, l.client, 8<<20) // a whole server
	if err != nil {
		l.t.Fatal(err)
	}
	return ca
}

// describe returns the events of a cache, and its VM.
func (l *listening) describe(ca *managerv1.AllocateResponse) (events []*managerv1.WatchResponse, vm *managerv1.Vm) {
	l.t.Helper()
	l.m.led().rest(l.t) // events come with the change that is written
	d, err := l.client.DescribeCache(testContext(l.t), connect.NewRequest(&managerv1.DescribeCacheRequest{CacheId: ca.GetCacheId()}))
	if err != nil {
		l.t.Fatal(err)
	}
	return d.Msg.GetEvents(), d.Msg.GetCache().GetGrants()[0].GetVm()
}

// A silent server is suspected: its cache keeps its grants, and there are no new ones. When
// the server is heard again, the suspicion is withdrawn.
func TestSilentServerIsSuspected(t *testing.T) {
	l := listen(t, 3)
	ca := l.allocate()
	id := ca.GetGrants()[0].GetVm().GetId()
	others := slices.DeleteFunc([]string{"s0", "s1", "s2"}, func(s string) bool { return s == id })
	l.beat(6, others...)
	events, vm := l.describe(ca)
	if len(events) != 1 || events[0].GetKind() != managerv1.WatchResponse_KIND_VM_SUSPECTED || events[0].GetVmId() != id {
		t.Fatalf("events %v", events)
	}
	if !vm.GetHealthy() || !vm.GetSuspected() {
		t.Errorf("VM %v: want it suspected, and not failed", vm)
	}
	l.beat(1, others...)
	if again, _ := l.describe(ca); len(again) != 1 {
		t.Errorf("told again: %v", again)
	}
	if n := l.m.Metrics(); n.Suspected != 1 || n.Failed != 0 || n.Blind {
		t.Errorf("metrics %+v", n)
	}
	l.beat(1, id)
	if events, vm := l.describe(ca); len(events) != 1 || events[0].GetKind() != managerv1.WatchResponse_KIND_VM_TRUSTED || vm.GetSuspected() || !vm.GetHealthy() {
		t.Errorf("heard again: events %v, VM %v", events, vm)
	}
}

// A suspected server gets no grants, and fails when its caches have left it.
func TestSuspectedServerIsLeft(t *testing.T) {
	l := listen(t, 3)
	ca := l.allocate()
	id := ca.GetGrants()[0].GetVm().GetId()
	others := slices.DeleteFunc([]string{"s0", "s1", "s2"}, func(s string) bool { return s == id })
	l.beat(6, others...)
	r, err := l.client.Reallocate(testContext(t), connect.NewRequest(&managerv1.ReallocateRequest{
		Change:  nextChange(),
		CacheId: ca.GetCacheId(), Regions: ca.GetGrants()[0].GetRegions(), PreferPresent: true,
	}))
	if err != nil {
		t.Fatal(err)
	}
	next := r.Msg.GetGrants()[0]
	if next.GetVm().GetId() == id {
		t.Fatal("memory of a server that is not heard")
	}
	if _, err := l.client.Settle(testContext(t), connect.NewRequest(&managerv1.SettleRequest{
		Change:  nextChange(),
		CacheId: ca.GetCacheId(), Capacity: 8 << 20, Grants: []*managerv1.SettledGrant{{Id: next.GetId(), Regions: next.GetRegions()}},
	})); err != nil {
		t.Fatal(err)
	}
	l.beat(1, others...)
	if l.m.led().state.up(id) != nil {
		t.Error("a silent server that nobody uses is still there")
	}
}

// A manager that hears no server fails none and ends no lease: neither before it notices,
// nor while it is blind, nor afterwards.
func TestManagerThatHearsNobody(t *testing.T) {
	for _, servers := range []int{2, 5} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			l := listen(t, servers)
			var all []string
			var caches []*managerv1.AllocateResponse
			for i := range servers {
				caches, all = append(caches, l.allocate()), append(all, fmt.Sprintf("s%d", i))
			}
			untouched := func(when string) {
				t.Helper()
				for _, ca := range caches {
					if events, vm := l.describe(ca); len(events) != 0 || !vm.GetHealthy() || vm.GetSuspected() {
						t.Errorf("%s: events %v, VM %v", when, events, vm)
					}
				}
			}
			// The servers' last heartbeats are at different times.
			for i, id := range all {
				if _, err := l.client.Heartbeat(testContext(t), connect.NewRequest(&managerv1.HeartbeatRequest{VmId: id, Start: starts(l.m, id), FreeMemory: 8 << 20})); err != nil {
					t.Fatal(err)
				}
				l.m.led().expireAt(l.clock.advance(time.Hour / time.Duration(2*len(all)-i)))
			}
			for range 100 {
				l.m.led().expireAt(l.clock.advance(time.Hour / 4))
			}
			untouched("hearing nobody")
			if n := l.m.Metrics(); !n.Blind || n.Blinded != 1 || n.Suspected != 0 || n.Failed != 0 {
				t.Errorf("metrics %+v", n)
			}
			if _, err := allocateBytes(t, l.client, 1<<20); connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Errorf("allocated on servers that are not heard: %v", err)
			}
			l.beat(4, all...)
			untouched("hearing them again")
			if n := l.m.Metrics(); n.Blind || n.Blinded != 1 || n.Suspected != 0 || n.Failed != 0 {
				t.Errorf("metrics %+v", n)
			}
			// Afterwards caches that are not renewed expire, together after a while.
			l.beat(9+blindTerms*int(testLease/time.Hour), all...)
			if n := l.m.Metrics(); n.Caches != 0 {
				t.Errorf("%d caches that nobody renewed", n.Caches)
			}
		})
	}
}

// If half of the servers, or all, are really gone, they are suspected after a while if the
// manager hears others. It does not stay blind, and caches that are not renewed expire.
func TestManyServersAreGone(t *testing.T) {
	for name, live := range map[string][]string{"half of all": {"s0", "s1"}, "all but clients": nil} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, 4)
			var caches []*managerv1.AllocateResponse
			for range 4 {
				caches = append(caches, l.allocate())
			}
			kept := caches[0]
			renewed := func(hours int) {
				t.Helper()
				for range hours {
					if _, err := l.client.Renew(testContext(t), connect.NewRequest(&managerv1.RenewRequest{CacheId: kept.GetCacheId()})); err != nil {
						t.Fatal(err)
					}
					l.beat(1, live...)
				}
			}
			renewed(20)
			if n := l.m.Metrics(); !n.Blind || n.Suspected != 0 || n.Caches != 4 {
				t.Errorf("at first: %+v", n)
			}
			renewed(30 + blindTerms*int(testLease/time.Hour)) // the clients fell silent together, too
			if n := l.m.Metrics(); n.Blind || n.Blinded != 1 || n.Suspected != uint64(4-len(live)) || n.Caches != 1 {
				t.Errorf("at last: %+v", n)
			}
		})
	}
}

// The manager is told that a node is not ready, as by Kubernetes. A silent VM there has failed
// only if no cache has memory of it, and the manager is not blind.
func TestUnreachable(t *testing.T) {
	l := listen(t, 4)
	used := l.allocate().GetGrants()[0].GetVm().GetId()
	c := l.m.led().state
	unused := ""
	c.mu.Lock()
	for id, v := range c.vms {
		if v.launched = true; id != used {
			unused = id
		}
	}
	c.mu.Unlock()
	failed := func(when, id string, want bool) {
		t.Helper()
		if v := c.unheard(id); (v != nil) != want {
			t.Errorf("%s: failed: %v, want %v", when, v != nil, want)
		}
	}
	failed("heard", unused, false)
	c.mu.Lock()
	c.vms[used].silent, c.vms[unused].silent = true, true
	c.mu.Unlock()
	failed("silent and unused", unused, true)
	failed("silent and used", used, false)
	c.mu.Lock()
	c.blind = true
	c.mu.Unlock()
	failed("blind", unused, false)
}

// Of many servers that fall silent, one in a hundred of all is failed in each check.
func TestSilenceIsBounded(t *testing.T) {
	l := listen(t, 0)
	c := l.m.led().state
	now := l.clock.read()
	c.mu.Lock()
	for i := range 500 {
		v := &vm{id: fmt.Sprintf("s%d", i), deadline: now.Add(testSilence)}
		if i < 200 {
			v.deadline = now.Add(-time.Minute)
		}
		c.vms[v.id] = v
	}
	c.mu.Unlock()
	s, err := c.listen(now, time.Hour, testSilence, testLease)
	if err != nil || s.blind || len(s.lost) != 500/lostShare {
		t.Errorf("%d of 200 silent servers are failed at once, blind: %v, %v; want %d", len(s.lost), s.blind, err, 500/lostShare)
	}
}
