package manager

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
)

func startNode(t *testing.T, id string) *node.Node {
	t.Helper()
	n, err := node.Start(node.Options{ID: id, Memory: 8 << 20, Transport: "mem", Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// announce runs Announce until the test ends. It returns a channel that receives a value
// for each registration.
func announce(t *testing.T, n *node.Node, mgr access.Client) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	registered := make(chan struct{}, 100)
	ended := make(chan error, 1)
	go func() { ended <- n.Announce(ctx, mgr, func() { registered <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := testrun.Receive(t, "the node ends", ended); err != nil {
			t.Error(err)
		}
	})
	return registered
}

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-testContext(t).Done():
		t.Fatalf("no %s", what)
	}
}

// A node registers, and registers again when the manager has failed it. Its memory is free
// again when the cache is deallocated.
func TestAnnounce(t *testing.T) {
	m, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour})
	n := startNode(t, "node")
	registered := announce(t, n, client)
	await(t, registered, "registration")

	ca, err := allocateBytes(t, client, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	vm := ca.GetGrants()[0].GetVm()
	server := serverv1connect.NewCacheServerServiceClient(api.HTTPClient, vm.GetControlUrl())
	grant := ca.GetGrants()[0]
	lend := &serverv1.ConnectRequest{
		Terms: grant.GetTerms(), Token: grant.GetToken(), Configuration: ca.GetConfiguration(),
	}
	if _, err := server.Connect(testContext(t), connect.NewRequest(lend)); err != nil {
		t.Fatal(err)
	}
	if free := n.VM().Free; free != 6<<20 {
		t.Errorf("%d bytes free while 2 MiB of 8 are lent", free)
	}

	m.led().fail("node", nil, "unplugged")
	await(t, registered, "second registration")
	// Memory that the lost cache still holds is not granted to others.
	if _, err := allocateBytes(t, client, 7<<20); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("7 of 8 MiB, 2 lent: %v", err)
	}
	if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.GetCacheId()})); err != nil {
		t.Fatal(err)
	}
	if free := n.VM().Free; free != 8<<20 {
		t.Errorf("%d bytes free afterwards", free)
	}
}

// A node that starts before its manager registers once the manager is there.
func TestAnnounceBeforeManager(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	refusals := make(chan struct{}, 100)
	go func() { // a port that closes each connection
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			refusals <- struct{}{}
		}
	}()
	registered := announce(t, startNode(t, "early"), access.Dial(addr))
	await(t, refusals, "attempt")
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := New(Options{Logger: quiet(), Heartbeat: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- m.Serve(ln) }()
	await(t, registered, "registration")
	if err := errors.Join(m.Close(testContext(t)), testrun.Receive(t, "Serve ends", served)); err != nil {
		t.Error(err)
	}
}

// A permanent refusal of the registration ends Announce.
func TestAnnounceRefused(t *testing.T) {
	_, client := serve(t, Options{})
	n := startNode(t, strings.Repeat("long", 100))
	if err := n.Announce(testContext(t), client, nil); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("error %v", err)
	}
}

// The manager signs the servers of a cache's grants, each once, for the servers of its new ones.
func TestSourcesAreSigned(t *testing.T) {
	_, client := serve(t, Options{Transport: "mem"})
	ctx := testContext(t)
	vm := node.VM{ControlURL: "http://10.0.0.1:1", Transport: "mem", Memory: 4 << 20, Free: 4 << 20, Cores: 4, Start: 1, Secret: controltoken.NewSecret()}
	var key []byte
	register := func(id, addr string) {
		t.Helper()
		vm.ID, vm.FabricAddr = id, addr
		r, err := client.Register(ctx, connect.NewRequest(&managerv1.RegisterRequest{Vm: vm.Proto(true), ControlSecret: []byte(vm.Secret)}))
		if err != nil {
			t.Fatal(err)
		}
		if key != nil && !bytes.Equal(r.Msg.GetSourceKey(), key) {
			t.Errorf("keys %x and %x", key, r.Msg.GetSourceKey())
		}
		key = r.Msg.GetSourceKey()
	}
	register("a", "fabric-a")
	ca, err := allocateBytes(t, client, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	register("b", "fabric-b")
	register("c", "fabric-c")
	avoid, want := "a", []string{"fabric-a"}
	for range 2 { // the second one while the first one's grants are not settled
		r, err := client.Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{
			CacheId: ca.GetCacheId(), Change: nextChange(), Regions: 2, AvoidVms: []string{"a", avoid},
		}))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range r.Msg.GetSources() {
			if err := controltoken.CheckSource(key, s, time.Now()); err != nil || s.GetTransport() != "mem" {
				t.Errorf("source %v: %v", s, err)
			}
			got = append(got, s.GetFabricAddr())
		}
		if !slices.Equal(got, want) {
			t.Errorf("sources %v, want %v", got, want)
		}
		avoid = r.Msg.GetGrants()[0].GetVm().GetId()
		want = append(want, "fabric-"+avoid)
	}
}

// A node that got no answer to its registration registers again; its caches keep their
// grants, whether their clients have connected or not.
func TestRegisterTwice(t *testing.T) {
	m, client := serve(t, Options{Transport: "mem"})
	n := startNode(t, "node")
	register := func() {
		t.Helper()
		if _, err := n.Register(testContext(t), client); err != nil {
			t.Fatal(err)
		}
	}
	register()
	register()
	ca, err := allocateBytes(t, client, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	register()
	server := serverv1connect.NewCacheServerServiceClient(api.HTTPClient, n.VM().ControlURL)
	grant := ca.GetGrants()[0]
	lend := &serverv1.ConnectRequest{
		Terms: grant.GetTerms(), Token: grant.GetToken(), Configuration: ca.GetConfiguration(),
	}
	if _, err := server.Connect(testContext(t), connect.NewRequest(lend)); err != nil {
		t.Fatal(err)
	}
	register()
	known, ok := m.led().state.watched(ca.GetCacheId())
	if !ok {
		t.Fatal("the cache is gone")
	}
	if events, _, _ := m.led().state.eventsAfter(known, nil, 0, time.Now()); len(events) != 0 {
		t.Errorf("events %v", events)
	}

	// Late calls of an earlier incarnation change nothing.
	former := n.VM()
	former.Start--
	_, err = client.Register(testContext(t), connect.NewRequest(&managerv1.RegisterRequest{Vm: former.Proto(true)}))
	if later, ok := errors.AsType[*api.StartError](err); !ok || later.Present != n.VM().Start || connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("an earlier incarnation registers: %v", err)
	}
	if _, err := client.Heartbeat(testContext(t), connect.NewRequest(&managerv1.HeartbeatRequest{VmId: "node", Start: former.Start})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an earlier incarnation sends a heartbeat: %v", err)
	}
	if _, err := client.Reclaim(testContext(t), connect.NewRequest(&managerv1.ReclaimRequest{VmId: "node", Start: former.Start})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an earlier incarnation leaves: %v", err)
	}
	if events, _, _ := m.led().state.eventsAfter(known, nil, 0, time.Now()); len(events) != 0 || m.led().state.up("node").Start != n.VM().Start {
		t.Errorf("events %v after calls of an earlier incarnation", events)
	}

	// A later incarnation at the same addresses has none of the memory that was lent.
	restarted := n.VM()
	restarted.Start++
	if err := m.led().state.register(restarted, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if events, _, _ := m.led().state.eventsAfter(known, nil, 0, time.Now()); len(events) != 1 {
		t.Errorf("events %v after a restart", events)
	}
}

// A server whose clock was set back while it was down registers nevertheless.
func TestRegisterWithEarlierClock(t *testing.T) {
	m, client := serve(t, Options{Transport: "mem"})
	n := startNode(t, "node")
	former := n.VM()
	former.Start += 1 << 40
	if err := m.led().state.register(former, "", time.Time{}); err != nil {
		t.Fatal(err)
	}
	await(t, announce(t, n, client), "registration")
	if v := m.led().state.up("node"); v.Start != former.Start+1 || n.VM().Start != v.Start {
		t.Errorf("number %d is registered, and the server has %d", v.Start, n.VM().Start)
	}
}
