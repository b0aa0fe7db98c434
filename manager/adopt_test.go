package manager

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
)

// succession is a cache server that a manager leaves, and the next one gets.
type succession struct {
	node   *node.Node
	client access.Client // of the first manager
	leave  func()        // the server leaves the first manager
}

// succeeds starts a manager with a store, and a cache server of 8 MiB for it.
func succeeds(t *testing.T, store *crashStore) *succession {
	t.Helper()
	_, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour, store: store})
	n := startNode(t, "node")
	ctx, leave := context.WithCancel(t.Context())
	registered, left := make(chan struct{}, 100), make(chan error, 1)
	go func() { left <- n.Announce(ctx, client, func() { registered <- struct{}{} }) }()
	await(t, registered, "registration")
	return &succession{node: n, client: client, leave: func() {
		leave()
		if err := testrun.Receive(t, "the server leaves the first manager", left); err != nil {
			t.Fatal(err)
		}
	}}
}

// lend connects a grant, or takes it up.
func (s *succession) lend(t *testing.T, g *managerv1.Grant, takeUp bool) {
	t.Helper()
	server := serverv1connect.NewCacheServerServiceClient(api.HTTPClient, s.node.VM().ControlURL)
	if _, err := server.Connect(testContext(t), connect.NewRequest(&serverv1.ConnectRequest{
		Terms: g.GetTerms(), Token: g.GetToken(), Configuration: DefaultConfiguration(), TakeUp: takeUp,
	})); err != nil {
		t.Fatal(err)
	}
}

// allocate allocates a cache of regions of 1 MiB from the first manager, and returns it as it is adopted.
func (s *succession) allocate(t *testing.T, regions uint64) *managerv1.AdoptRequest {
	t.Helper()
	ca, err := allocateBytes(t, s.client, regions<<20)
	if err != nil {
		t.Fatal(err)
	}
	s.lend(t, ca.GetGrants()[0], false)
	return &managerv1.AdoptRequest{
		CacheId: ca.GetCacheId(), Change: 3, Grants: ca.GetGrants(),
		As: &managerv1.AllocateRequest{Capacity: regions << 20, Configuration: ca.GetConfiguration(), RegionSize: 1 << 20, Transport: "mem"},
	}
}

func adopt(t *testing.T, client access.Client, req *managerv1.AdoptRequest) (*managerv1.AdoptResponse, error) {
	t.Helper()
	r, err := client.Adopt(testContext(t), connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// A manager with an empty catalog adopts a cache that its server shows, once, and no other. It lends the
// other memory, and a manager after it knows the cache.
func TestAdopt(t *testing.T) {
	s := succeeds(t, newCrashStore())
	good := s.allocate(t, 2)
	unlent, err := allocateBytes(t, s.client, 1<<20) // never connected
	if err != nil {
		t.Fatal(err)
	}
	s.leave()
	store := newCrashStore()
	m, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour, Lease: time.Hour, store: store})
	if _, err := adopt(t, client, good); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("before the server has registered: %v", err)
	}
	await(t, announce(t, s.node, client), "registration")
	for name, tc := range map[string]struct {
		code   connect.Code
		change func(req *managerv1.AdoptRequest)
	}{
		"no number":          {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.Change = 0 }},
		"a negative lease":   {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.LeaseMs = -1 }},
		"no id":              {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.CacheId = "" }},
		"another's terms":    {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.CacheId = "another" }},
		"another holder":     {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.Holder = 1 }},
		"no grants":          {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.Grants = nil }},
		"no terms":           {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.Grants[0].Terms = nil }},
		"a grant twice":      {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.Grants = append(r.Grants, r.Grants[0]) }},
		"no regions":         {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.Grants[0].Regions = 0 }},
		"more regions":       {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.Grants[0].Regions = 3 }},
		"another size":       {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.As.RegionSize = 2 << 20 }},
		"no size":            {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.As.RegionSize = 0 }},
		"no capacity":        {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.As.Capacity = 0 }},
		"no configuration":   {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.As.Configuration = nil }},
		"a negative linger":  {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.As.LingerMs = -1 }},
		"too many per":       {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.Per = maxRegions + 1 }},
		"nothing at all":     {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { proto.Reset(r) }},
		"a forged token":     {connect.CodeUnavailable, func(r *managerv1.AdoptRequest) { r.Grants[0].Terms.Cores++ }},
		"another VM":         {connect.CodeUnavailable, func(r *managerv1.AdoptRequest) { r.Grants[0].Terms.VmId = "other" }},
		"it is not lent":     {connect.CodeUnavailable, func(r *managerv1.AdoptRequest) { r.CacheId, r.Grants = unlent.GetCacheId(), unlent.GetGrants() }},
		"one is not lent":    {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.Grants = append(r.Grants, unlent.GetGrants()...) }},
		"a nonsensical wish": {connect.CodeInvalidArgument, func(r *managerv1.AdoptRequest) { r.As.DurationSeconds = -1 }},
	} {
		req := proto.CloneOf(good)
		tc.change(req)
		if _, err := adopt(t, client, req); connect.CodeOf(err) != tc.code {
			t.Errorf("%s: %v, want %v", name, err, tc.code)
		}
	}
	if caches, _ := m.led().state.size(); caches != 0 {
		t.Fatalf("%d caches are adopted", caches)
	}

	state := m.led().state
	for range 2 {
		if got, err := adopt(t, client, good); err != nil || got.GetLeaseMs() != time.Hour.Milliseconds() {
			t.Errorf("%v, %v", got, err)
		}
		state.check(t)
		state.mu.Lock()
		ca := state.caches[good.GetCacheId()]
		if left := time.Until(ca.expires); left < time.Hour/2 {
			t.Errorf("its lease ends in %v", left)
		}
		ca.expires = time.Now().Add(time.Minute) // each call begins another lease
		state.mu.Unlock()
	}
	late := proto.CloneOf(good)
	late.Change = 2
	if _, err := adopt(t, client, late); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a late call: %v", err)
	}
	rest, err := allocateBytes(t, client, 6<<20)
	if err != nil {
		t.Errorf("the memory that no cache has: %v", err)
	}
	if got, err := allocateBytes(t, client, 1<<20); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("adopted memory is lent again: %v, %v", got, err)
	}
	if _, err := client.Deallocate(t.Context(), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: rest.GetCacheId()})); err != nil {
		t.Error(err)
	}
	m.led().state.check(t)
	for answered, want := range map[uint64]connect.Code{0: 0, 3: 0, 4: connect.CodeAborted} {
		_, err := client.Renew(t.Context(), connect.NewRequest(&managerv1.RenewRequest{CacheId: good.GetCacheId(), Answered: answered}))
		if err != nil && connect.CodeOf(err) != want || err == nil && want != 0 {
			t.Errorf("renewed, %d answered: %v", answered, err)
		}
	}
	// Another manager may have given g2, whoever has it.
	more, err := client.Reallocate(t.Context(), connect.NewRequest(&managerv1.ReallocateRequest{CacheId: good.GetCacheId(), Regions: 1, Change: 4, Answered: 3}))
	if err != nil {
		t.Fatal(err)
	}
	if n := grantNumber(more.Msg.GetGrants()[0].GetId()); n <= m.led().self.Epoch>>10 {
		t.Errorf("the next grant is g%d", n)
	}
	older := &managerv1.ReallocateRequest{CacheId: good.GetCacheId(), Regions: 1, Change: 6, Answered: 5}
	if _, err := client.Reallocate(t.Context(), connect.NewRequest(older)); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("a manager with an older state gives a grant: %v", err)
	}
	next, _ := serve(t, Options{Transport: "mem", Moved: true, store: store.next()})
	if got, err := next.led().state.describeCache(good.GetCacheId()); err != nil || got.GetCache().GetCapacity() != 2<<20 || len(got.GetCache().GetGrants()) != 2 {
		t.Errorf("the manager after it knows %v, %v", got, err)
	}

	if r, err := client.Deallocate(t.Context(), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: good.GetCacheId()})); err != nil || !r.Msg.GetExisted() {
		t.Errorf("Deallocate: %v, %v", r, err)
	}
	if _, err := adopt(t, client, good); connect.CodeOf(err) != connect.CodeFailedPrecondition && connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("adopted after its end: %v", err)
	}
	testrun.Until(t, "all memory is free", func() bool { return s.node.VM().Free == 8<<20 })
	m.led().state.check(t)
}

// A server that has registered may obey the manager before for a while: it is asked again.
func TestAdoptFromOneThatObeysAnother(t *testing.T) {
	s := succeeds(t, newCrashStore())
	req := s.allocate(t, 2)
	m, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour})
	vm := s.node.VM()
	if err := m.led().state.register(vm, "", time.Now().Add(time.Hour)); err != nil { // and it has not got the answer
		t.Fatal(err)
	}
	if _, err := adopt(t, client, req); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("before the server obeys: %v", err)
	}
	s.leave()
	await(t, announce(t, s.node, client), "registration")
	if _, err := adopt(t, client, req); err != nil {
		t.Error(err)
	}
}

// The first lease of an adopted cache lasts as long as the one that its client was told. Of an older copy
// the holder is taken to whom the server lends.
func TestAdoptLease(t *testing.T) {
	store := newCrashStore()
	s := succeeds(t, store)
	first := s.allocate(t, 2)
	older := store.next()
	second, err := s.client.Attach(t.Context(), connect.NewRequest(&managerv1.AttachRequest{CacheId: first.GetCacheId(), RequestId: newRequestID()}))
	if err != nil {
		t.Fatal(err)
	}
	s.lend(t, second.Msg.GetGrants()[0], true)
	s.leave()
	m, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour, Lease: time.Minute, Moved: true, store: older})
	await(t, announce(t, s.node, client), "registration")
	req := proto.CloneOf(first)
	req.Holder, req.Grants, req.LeaseMs = 1, second.Msg.GetGrants(), time.Hour.Milliseconds()
	began := m.opts.now()
	if got, err := adopt(t, client, req); err != nil || got.GetLeaseMs() != time.Minute.Milliseconds() {
		t.Errorf("%v, %v", got, err)
	}
	c := m.led().state
	c.mu.Lock()
	ca := c.caches[req.GetCacheId()]
	if ca.holder != 1 || ca.expires.Before(began.Add(time.Hour)) || ca.places != nil {
		t.Errorf("holder %d, lease until %v, places %v", ca.holder, ca.expires, ca.places)
	}
	c.mu.Unlock()
	if _, err := client.Renew(t.Context(), connect.NewRequest(&managerv1.RenewRequest{CacheId: req.GetCacheId()})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("the first client renews: %v", err)
	}
	c.check(t)
}

// A client whose cache another one has taken up does not get it back from a manager that does not know that.
func TestAdoptTaken(t *testing.T) {
	s := succeeds(t, newCrashStore())
	first := s.allocate(t, 2)
	second, err := s.client.Attach(t.Context(), connect.NewRequest(&managerv1.AttachRequest{CacheId: first.GetCacheId(), RequestId: newRequestID()}))
	if err != nil {
		t.Fatal(err)
	}
	s.lend(t, second.Msg.GetGrants()[0], true)
	s.leave()
	m, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour})
	await(t, announce(t, s.node, client), "registration")
	var holder *api.HolderError
	if _, err := adopt(t, client, first); !errors.As(api.Typed(err), &holder) || holder.Holder != 1 {
		t.Errorf("the first client gets its cache back: %v", err)
	}
	own := proto.CloneOf(first)
	own.Holder, own.Grants = 1, second.Msg.GetGrants()
	if _, err := adopt(t, client, own); err != nil {
		t.Errorf("the second client: %v", err)
	}
	m.led().state.check(t)
}

// An older copy of the catalog lacks a grant. The client that has settled since is told, and the grant is
// adopted.
func TestAdoptLacking(t *testing.T) {
	store := newCrashStore()
	s := succeeds(t, store)
	req := s.allocate(t, 2)
	older := store.next()
	more, err := s.client.Reallocate(t.Context(), connect.NewRequest(&managerv1.ReallocateRequest{CacheId: req.GetCacheId(), Regions: 1, Change: 4}))
	if err != nil {
		t.Fatal(err)
	}
	s.lend(t, more.Msg.GetGrants()[0], false)
	req.Grants, req.Change, req.As.Capacity = append(req.Grants, more.Msg.GetGrants()...), 5, 3<<20
	settle := func(client access.Client, change uint64) error {
		_, err := client.Settle(t.Context(), connect.NewRequest(&managerv1.SettleRequest{
			CacheId: req.GetCacheId(), Capacity: 3 << 20, Change: change,
			Grants: []*managerv1.SettledGrant{{Id: "g1", Regions: 2}, {Id: "g2", Regions: 1}},
			Places: []*managerv1.Places{{Grant: 1, Regions: 2}, {Grant: 2, Regions: 1}},
		}))
		return err
	}
	if err := settle(s.client, 5); err != nil {
		t.Fatal(err)
	}
	s.leave()
	m, client := serve(t, Options{Transport: "mem", Heartbeat: time.Millisecond, Silence: time.Hour, Lease: time.Hour, Moved: true, store: older})
	await(t, announce(t, s.node, client), "registration")
	renew := func() error {
		_, err := client.Renew(t.Context(), connect.NewRequest(&managerv1.RenewRequest{CacheId: req.GetCacheId(), Answered: 5}))
		return err
	}
	c := m.led().state
	c.mu.Lock()
	c.caches[req.GetCacheId()].lease, c.caches[req.GetCacheId()].expires = time.Hour, m.opts.now().Add(time.Minute)
	c.mu.Unlock()
	if err := renew(); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("an older copy knows the cache: %v", err)
	}
	c.mu.Lock()
	if ca := c.caches[req.GetCacheId()]; !ca.expires.After(m.opts.now().Add(time.Minute)) {
		t.Error("a cache whose client renews as of a later state has no lease meanwhile")
	}
	c.mu.Unlock()
	if err := settle(client, 6); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("an older copy knows the grant: %v", err)
	}
	for range 2 {
		if _, err := adopt(t, client, req); err != nil {
			t.Error(err)
		}
		m.led().state.check(t)
	}
	if err := renew(); err != nil {
		t.Error(err)
	}
	if err := settle(client, 6); err != nil {
		t.Error(err)
	}
	req.Change = 7 // not needed: it changes nothing, and no call of before is late
	if _, err := adopt(t, client, req); err != nil {
		t.Error(err)
	}
	c.mu.Lock()
	if ca := c.caches[req.GetCacheId()]; ca.change != 6 || len(ca.places) == 0 {
		t.Errorf("a call that is not needed: change %d, places %v", ca.change, ca.places)
	}
	c.mu.Unlock()
	if got, err := m.led().state.describeCache(req.GetCacheId()); err != nil || got.GetCache().GetCapacity() != 3<<20 || len(got.GetCache().GetGrants()) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	m.led().state.check(t)
}
