package manager

import (
	"context"
	"os"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
)

// watchCache returns the events of a cache until the stream ends.
func watchCache(t *testing.T, client access.Client, id string) <-chan *managerv1.WatchResponse {
	t.Helper()
	stream, err := client.Watch(testContext(t), connect.NewRequest(&managerv1.WatchRequest{CacheId: id}))
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan *managerv1.WatchResponse)
	go func() {
		defer close(events)
		for stream.Receive() {
			events <- stream.Msg()
		}
		_ = stream.Close() // it may have ended with the test
	}()
	return events
}

func awaitEvent(t *testing.T, events <-chan *managerv1.WatchResponse, kind managerv1.WatchResponse_Kind, vm string) *managerv1.WatchResponse {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok || e.GetKind() != kind || e.GetVmId() != vm {
			t.Fatalf("event %v, want %v of %q", e, kind, vm)
		}
		return e
	case <-testContext(t).Done():
		t.Fatalf("no %v of %q", kind, vm)
	}
	return nil
}

// borrow connects all of a cache's regions on a node, as its client would, and returns a
// function that disconnects them.
func borrow(t *testing.T, n *node.Node, ca *managerv1.AllocateResponse) (giveBack func()) {
	t.Helper()
	server := serverv1connect.NewCacheServerServiceClient(api.HTTPClient, n.VM().ControlURL)
	grant := ca.GetGrants()[0]
	r, err := server.Connect(testContext(t), connect.NewRequest(&serverv1.ConnectRequest{
		Terms: grant.GetTerms(), Token: grant.GetToken(), Configuration: ca.GetConfiguration(),
	}))
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := server.Disconnect(testContext(t), connect.NewRequest(&serverv1.DisconnectRequest{
			CacheId: ca.GetCacheId(), Grant: grant.GetId(), Ticket: r.Msg.GetTicket(),
		})); err != nil {
			t.Fatal(err)
		}
	}
}

// A node that leaves stays until nothing is lent. If the manager fails it meanwhile, and it
// registers again, the manager is told again that it leaves.
func TestLeave(t *testing.T) {
	m, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour})
	n := startNode(t, "node")
	registered := announce(t, n, client)
	await(t, registered, "registration")
	ca, err := allocateBytes(t, client, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	giveBack := borrow(t, n, ca)
	events := watchCache(t, client, ca.GetCacheId())
	left := make(chan struct{})
	go func() {
		defer close(left)
		n.Leave(testContext(t), client, time.Hour)
	}()
	e := awaitEvent(t, events, managerv1.WatchResponse_KIND_VM_RECLAIMED, "node")
	if notice := time.Until(time.UnixMilli(e.GetDeadlineUnixMs())); notice < 50*time.Minute || notice > time.Hour+time.Minute {
		t.Errorf("the deadline is in %v, want an hour", notice)
	}
	if _, err := allocateBytes(t, client, 1<<20); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a server that leaves is given away: %v", err)
	}

	m.led().fail("node", nil, "forgotten")
	awaitEvent(t, events, managerv1.WatchResponse_KIND_VM_FAILED, "node")
	await(t, registered, "second registration")
	if vms := m.led().state.describe().GetVms(); len(vms) != 2 || !vms[1].GetLeaving() {
		t.Errorf("VMs %v, want a failed one and one that is leaving", vms)
	}
	select {
	case <-left:
		t.Error("it has left with its memory lent")
	default:
	}
	giveBack()
	await(t, left, "leaving")
}

// registering is a client whose registrations a test sees.
type registering struct {
	access.Client
	registered func()
}

func (c registering) Register(ctx context.Context, req *connect.Request[managerv1.RegisterRequest]) (*connect.Response[managerv1.RegisterResponse], error) {
	r, err := c.Client.Register(ctx, req)
	c.registered()
	return r, err
}

// A node that registers again while it leaves, and ends right then, tells the manager that it leaves
// nevertheless; after its notice it registers no more. Otherwise the manager would give a server away
// that has ended.
func TestLeavesWhileItRegisters(t *testing.T) {
	m, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour})
	n := startNode(t, "node")
	ctx, end := context.WithCancel(testContext(t))
	defer end()
	first, times := make(chan struct{}), 0
	ended := make(chan error, 1)
	go func() {
		ended <- n.Announce(ctx, registering{client, func() {
			if times++; times == 1 {
				close(first)
			} else {
				end()
			}
		}}, nil)
	}()
	testrun.Receive(t, "the first registration", first)
	ca, err := allocateBytes(t, client, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	giveBack := borrow(t, n, ca)
	events := watchCache(t, client, ca.GetCacheId())
	leaving, stay := context.WithCancel(testContext(t))
	defer stay()
	left := make(chan struct{})
	go func() {
		defer close(left)
		n.Leave(leaving, client, time.Hour)
	}()
	awaitEvent(t, events, managerv1.WatchResponse_KIND_VM_RECLAIMED, "node")
	m.led().fail("node", nil, "forgotten")
	awaitEvent(t, events, managerv1.WatchResponse_KIND_VM_FAILED, "node")
	if err := testrun.Receive(t, "the node ends", ended); err != nil {
		t.Error(err)
	}
	if vms := m.led().state.describe().GetVms(); times != 2 || len(vms) != 2 || !vms[1].GetLeaving() {
		t.Errorf("%d registrations, VMs %v; want two of each, and the second to leave", times, vms)
	}
	stay()
	giveBack()
	testrun.Receive(t, "the end of Leave", left)
	n.Leave(testContext(t), client, 0)
	late, end := context.WithTimeout(testContext(t), 20*time.Millisecond)
	defer end()
	if err := n.Announce(late, registering{client, func() { times++ }}, nil); err != nil || times != 2 {
		t.Errorf("after its notice: %v, %d registrations", err, times)
	}
}

// A node stays no longer than its notice, and leaves at once if nothing is lent.
func TestLeaveInTime(t *testing.T) {
	_, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour})
	n := startNode(t, "node")
	await(t, announce(t, n, client), "registration")
	ca, err := allocateBytes(t, client, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	giveBack := borrow(t, n, ca)
	n.Leave(testContext(t), client, time.Millisecond)
	giveBack()
	n.Leave(testContext(t), client, time.Hour)

	// The same if the manager cannot be reached.
	n.Leave(testContext(t), access.Dial("127.0.0.1:1"), time.Hour)
}

// The caches of a reclaimed VM are told at once, and again at the deadline, when the VM is
// terminated. This test uses the real clock.
func TestReclaimedByAllocator(t *testing.T) {
	for _, tc := range []struct {
		name  string
		start func(t *testing.T) (reclaim func(string, time.Duration) bool, client access.Client, used func() uint64)
	}{
		{"in process", func(t *testing.T) (func(string, time.Duration) bool, access.Client, func() uint64) {
			a := newScripted(t, 64<<20)
			_, client := serve(t, Options{Allocator: a, VMMemory: 1 << 20})
			return a.Reclaim, client, a.used
		}},
		{"processes", func(t *testing.T) (func(string, time.Duration) bool, access.Client, func() uint64) {
			t.Setenv(childEnv, "registers")
			a, err := allocator.NewLocal(allocator.LocalOptions{Command: []string{os.Args[0]}, Memory: 16 << 20, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			_, client := serve(t, Options{Allocator: a, VMMemory: 1 << 20})
			return a.Reclaim, client, func() uint64 { return 16<<20 - a.Room() }
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reclaim, client, used := tc.start(t)
			ca, err := allocateBytes(t, client, 2<<20)
			if err != nil {
				t.Fatal(err)
			}
			first, second := ca.GetGrants()[0].GetVm().GetId(), ca.GetGrants()[1].GetVm().GetId()
			events := watchCache(t, client, ca.GetCacheId())
			if !reclaim(first, time.Hour) || !reclaim(second, time.Millisecond) || reclaim("stranger", time.Hour) {
				t.Error("which VMs there are")
			}
			awaitEvent(t, events, managerv1.WatchResponse_KIND_VM_RECLAIMED, first)
			awaitEvent(t, events, managerv1.WatchResponse_KIND_VM_RECLAIMED, second)
			awaitEvent(t, events, managerv1.WatchResponse_KIND_VM_FAILED, second)

			// The other VM is terminated as soon as the cache has left it.
			more, err := client.Reallocate(testContext(t), connect.NewRequest(&managerv1.ReallocateRequest{Change: nextChange(), CacheId: ca.GetCacheId(), Regions: 1}))
			if err != nil {
				t.Fatal(err)
			}
			third := more.Msg.GetGrants()[0].GetVm().GetId()
			settle := &managerv1.SettleRequest{Change: nextChange(), CacheId: ca.GetCacheId(), Capacity: 1 << 20, Grants: []*managerv1.SettledGrant{
				{Id: more.Msg.GetGrants()[0].GetId(), Regions: 1},
			}}
			if _, err := client.Settle(testContext(t), connect.NewRequest(settle)); err != nil {
				t.Fatal(err)
			}
			if reclaim(first, time.Hour) || !reclaim(third, 0) {
				t.Error("the first VM is still there, or the third is not")
			}
			awaitEvent(t, events, managerv1.WatchResponse_KIND_VM_RECLAIMED, third)
			awaitEvent(t, events, managerv1.WatchResponse_KIND_VM_FAILED, third)
			if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.GetCacheId()})); err != nil {
				t.Fatal(err)
			}
			awaitEvent(t, events, managerv1.WatchResponse_KIND_CACHE_DELETED, "")
			for ctx := testContext(t); used() > 0; { // the last VM is terminated after its cache was told
				if ctx.Err() != nil {
					t.Fatalf("%d bytes are in use", used())
				}
			}
		})
	}
}

// A cache whose client is gone is deallocated, and its watchers are told the reason. A
// renewed cache stays. This test uses the real clock.
func TestLeaseExpires(t *testing.T) {
	m, client := serve(t, Options{Allocator: newScripted(t, 64<<20), Lease: 5 * time.Millisecond, Heartbeat: time.Millisecond})
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if ca.GetLeaseMs() != 5 {
		t.Errorf("a lease of %d ms", ca.GetLeaseMs())
	}
	for known, ok := m.led().state.watched(ca.GetCacheId()); ok; {
		events, more, _ := m.led().state.eventsAfter(known, nil, 0, time.Now())
		if len(events) == 0 {
			await(t, more, "end of the lease")
			continue
		}
		if e := events[0]; e.GetKind() != managerv1.WatchResponse_KIND_CACHE_DELETED || e.GetReason() != "lease expired: not renewed for 5ms" {
			t.Errorf("event %v", e)
		}
		break
	}
	if _, err := client.Renew(testContext(t), connect.NewRequest(&managerv1.RenewRequest{CacheId: ca.GetCacheId()})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("renewed too late: %v", err)
	}
}

// A Reallocate whose caller is gone ends with the client's next change.
func TestReallocateForNobody(t *testing.T) {
	a := newScripted(t, 64<<20)
	m, client := serve(t, Options{Allocator: a})
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(testContext(t))
	leave()
	_, err = service{m: m}.Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{Change: nextChange(), CacheId: ca.GetCacheId(), Regions: 2}))
	if err != nil && connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("error %v", err)
	}
	if _, err := client.Settle(testContext(t), connect.NewRequest(&managerv1.SettleRequest{
		CacheId: ca.GetCacheId(), Change: nextChange(), Capacity: 1 << 20, Grants: []*managerv1.SettledGrant{{Id: "g1", Regions: 1}},
	})); err != nil {
		t.Fatal(err)
	}
	m.led().rest(t)
	if d := m.led().state.describe(); len(d.GetCaches()[0].GetGrants()) != 1 || len(d.GetVms()) != 1 || a.used() != 1<<20 {
		t.Errorf("left over: %v, %d bytes", d, a.used())
	}
}

// A cache that is deallocated during a Reallocate gets no grants.
func TestDeallocateDuringReallocate(t *testing.T) {
	a := newScripted(t, 64<<20)
	m, client := serve(t, Options{Allocator: a})
	ca, err := allocateBytes(t, client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	a.expect("silent")
	failed := make(chan error)
	go func() {
		_, err := service{m: m}.Reallocate(testContext(t), connect.NewRequest(&managerv1.ReallocateRequest{Change: nextChange(), CacheId: ca.GetCacheId(), Regions: 2}))
		failed <- err
	}()
	testrun.Receive(t, "the VM is launched", a.silent)
	if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.GetCacheId()})); err != nil {
		t.Fatal(err)
	}
	if err := testrun.Receive(t, "Reallocate ends", failed); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("error %v", err)
	}
	if d := m.led().state.describe(); len(d.GetCaches())+len(d.GetVms()) != 0 || a.used() != 0 {
		t.Errorf("left over: %v, %d bytes", d, a.used())
	}
}
