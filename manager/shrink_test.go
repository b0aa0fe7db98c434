package manager

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/api"
)

// A client settles with one region of a grant of eight and then connects with the terms of before.
// The other seven are lent to others when the server has them back, and not earlier, also by another
// leader.
func TestShrunkGrantIsNotLentTwice(t *testing.T) {
	s := newCrashStore()
	m, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour, store: s})
	n := startNode(t, "node") // of 8 MiB
	await(t, announce(t, n, client), "registration")
	ctx := testContext(t)
	ca, err := allocateBytes(t, client, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	grant := ca.GetGrants()[0]
	if _, err := client.Settle(ctx, connect.NewRequest(&managerv1.SettleRequest{
		CacheId: ca.GetCacheId(), Change: nextChange(), Capacity: 1 << 20, Grants: []*managerv1.SettledGrant{{Id: grant.GetId(), Regions: 1}},
	})); err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		m.led().rest(t)
		if got, err := allocateBytes(t, client, 7<<20); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Fatalf("%s, the memory is lent again: %v, %v", when, got.GetGrants(), err)
		}
	}
	refused("before the client has connected")
	server := serverv1connect.NewCacheServerServiceClient(api.HTTPClient, n.VM().ControlURL)
	lent, err := server.Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{
		Terms: grant.GetTerms(), Token: grant.GetToken(), Configuration: ca.GetConfiguration(),
	}))
	if err != nil || len(lent.Msg.GetRegionTokens()) != 8 {
		t.Fatalf("connected with the first terms: %v", err)
	}
	refused("while the server lends it")
	again, err := reload(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if vms := again.led().state.describe().GetVms(); len(vms) != 1 || vms[0].GetFreeMemory() != 0 {
		t.Errorf("another leader has %v", vms)
	}
	if _, err := server.Release(ctx, connect.NewRequest(&serverv1.ReleaseRequest{
		CacheId: ca.GetCacheId(), Grant: grant.GetId(), Ticket: lent.Msg.GetTicket(), Keep: 1,
	})); err != nil {
		t.Fatal(err)
	}
	var other *managerv1.AllocateResponse
	testrun.Until(t, "the memory is lent again", func() bool {
		other, err = allocateBytes(t, client, 7<<20)
		return err == nil
	})
	borrow(t, n, other)()
	m.led().state.check(t)
}

// An audit counts what a server lends of a grant.
func TestAuditComparesAmounts(t *testing.T) {
	m, client := serve(t, Options{})
	if err := m.led().state.register(testVM("a", 8<<20, 0, "http://127.0.0.1:1"), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	ca, err := allocateBytes(t, client, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, regions := range []uint32{5, 2, 70_000, math.MaxUint32, 2} { // it has 8
		m.led().state.audited("a", []*serverv1.Grant{{
			CacheId: ca.GetCacheId(), Id: ca.GetGrants()[0].GetId(), Regions: regions, Bytes: uint64(regions) << 20,
		}}, time.Now(), time.Hour)
		if free := m.led().state.describe().GetVms()[0].GetFreeMemory(); free != uint64(8-min(regions, 8))<<20 {
			t.Errorf("%d bytes are free while the server lends %d of 8 regions", free, regions)
		}
		m.led().state.check(t)
	}
}

// A Settle does not wait for a server's answer that is of no use any more, as an audit has shown what it
// lends, or the cache ends.
func TestSettleWaitsForNoLook(t *testing.T) {
	held := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-held })) // a server that hangs
	t.Cleanup(web.Close)
	t.Cleanup(func() { close(held) })
	m, client := serve(t, Options{})
	c := m.led().state
	if err := c.register(testVM("a", 8<<20, 0, web.URL), "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(*managerv1.AllocateResponse){
		"audit": func(ca *managerv1.AllocateResponse) {
			c.audited("a", []*serverv1.Grant{{CacheId: ca.GetCacheId(), Id: ca.GetGrants()[0].GetId(), Regions: 1, Bytes: 1 << 20}}, time.Now(), time.Hour)
		},
		"end of the cache": func(ca *managerv1.AllocateResponse) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.leave(c.caches[ca.GetCacheId()].grants)
		},
	} {
		ca, err := allocateBytes(t, client, 2<<20)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.settle(&managerv1.SettleRequest{
			CacheId: ca.GetCacheId(), Change: nextChange(), Capacity: 1 << 20,
			Grants: []*managerv1.SettledGrant{{Id: ca.GetGrants()[0].GetId(), Regions: 1}},
		}, time.Now())
		if err != nil || len(s.looked) != 1 {
			t.Fatalf("%s: %v, %d grants shrink", name, err, len(s.looked))
		}
		end(ca)
		select {
		case <-s.looked[0]:
		default:
			t.Errorf("%s: the Settle waits on", name)
		}
	}
}

// Memory that a server lends, and of which the manager does not know, is not granted. A single
// heartbeat may have been overtaken by what has freed memory.
func TestHeartbeatWithLessMemory(t *testing.T) {
	m, client := serve(t, Options{})
	if err := m.led().state.register(testVM("a", 8<<20, 0, "http://127.0.0.1:1"), "", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := allocateBytes(t, client, 2<<20); err != nil { // its client has not connected
		t.Fatal(err)
	}
	for i, beat := range []struct{ sent, free uint64 }{{8, 6}, {3, 6}, {8, 6}, {3, 6}, {4, 4}, {3, 4}, {8, 6}} {
		if _, err := client.Heartbeat(testContext(t), connect.NewRequest(&managerv1.HeartbeatRequest{VmId: "a", Start: 1, FreeMemory: beat.sent << 20})); err != nil {
			t.Fatal(err)
		}
		if free := m.led().state.describe().GetVms()[0].GetFreeMemory(); free != beat.free<<20 {
			t.Errorf("heartbeat %d of %d MiB: %d bytes are free, want %d MiB", i, beat.sent, free, beat.free)
		}
	}
}
