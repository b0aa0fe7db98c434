package redytier

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/fabric/transport/transporttest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/model"
	"github.com/redykv/redykv/manager/node"
)

// managed is a real manager with its VMs, and the events of its caches.
type managed struct {
	*manager.Embedded
	vms    VMs
	events chan Event
}

// VMs are the VMs of an allocator, in this process or in their own processes.
type VMs interface {
	allocator.Allocator
	Reclaim(id string, notice time.Duration) bool
	Kill(id string) bool
}

// managedRegion is the region size of a managed cache, and managedRegions their number in its
// capacity.
const (
	managedRegion  = 64 << 10
	managedRegions = 4
)

// manage starts a manager whose VMs are in this process, have room for perVM regions, and are
// reachable over mem.
func manage(t *testing.T, perVM int, lease time.Duration) *managed {
	t.Helper()
	vms, err := allocator.NewInProcess(allocator.InProcessOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return manageVMs(t, vms, "mem", perVM, lease)
}

// manageVMs is manage for given VMs and another transport.
func manageVMs(t *testing.T, vms VMs, transport string, perVM int, lease time.Duration) *managed {
	t.Helper()
	m, err := manager.Embed(t.Context(), manager.EmbedOptions{
		Allocator: vms, VMMemory: uint64(perVM) * managedRegion, Models: []*model.Model{sloModel(t, transport)},
		Lease: lease, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return &managed{Embedded: m, vms: vms, events: make(chan Event, 256)}
}

// announce starts a cache server named large with room for a number of regions, and returns
// when the manager knows it.
func (m *managed) announce(t *testing.T, regions int) *node.Node {
	t.Helper()
	return m.announceOver(t, "mem", regions)
}

// announceOver is announce for another transport.
func (m *managed) announceOver(t *testing.T, transport string, regions int) *node.Node {
	t.Helper()
	node, err := node.Start(node.Options{
		ID: "large", Memory: uint64(regions) * managedRegion, Cores: 4, Transport: transport, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	registered, over := make(chan struct{}), make(chan error, 1)
	// A slow machine may miss heartbeats; then the node registers again.
	go func() { over <- node.Announce(ctx, m, sync.OnceFunc(func() { close(registered) })) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(testrun.Receive(t, "the node ends", over), node.Close()); err != nil { // ends with its context
			t.Error(err)
		}
	})
	testrun.Receive(t, "the node is registered", registered)
	return node
}

// forManaged runs a test over transports and two configurations, with two VMs in this process
// or in their own processes.
func forManaged(t *testing.T, test func(t *testing.T, m *managed, cfg Config)) {
	for _, name := range transporttest.Names(t) {
		for what, configuration := range map[string]Configuration{"one-sided": configurations[0], "batches": configurations[2]} {
			ForVMs(t, name+","+what, name, func(t *testing.T, vms VMs) {
				test(t, manageVMs(t, vms, name, 2, 0), Config{Transport: name, Configuration: configuration})
			})
		}
	}
}

// create makes a cache of this manager through mgr. It is deleted at the end of the test.
func (m *managed) create(t *testing.T, mgr Manager, cfg Config) *Cache {
	t.Helper()
	cfg.RegionSize, cfg.Logger = managedRegion, cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Capacity == 0 {
		cfg.Capacity = managedRegions * managedRegion
	}
	cfg.OnEvent = func(e Event) { m.events <- e }
	cfg.ServerTimeout = cmp.Or(cfg.ServerTimeout, testServerTimeout)
	cache, err := Create(t.Context(), mgr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cache.Delete(context.Background()); err != nil && !errors.Is(err, ErrDeleted) {
			t.Error(err)
		}
	})
	return cache
}

// expect returns the next event of a kind, and drops those of other kinds.
func (m *managed) expect(t *testing.T, kind EventKind) Event {
	t.Helper()
	for tries := 0; tries < 2; { // a second try, in case this process was paused
		select {
		case e := <-m.events:
			if e.Kind == kind {
				return e
			}
		case <-time.After(patience):
			tries++
		}
	}
	t.Fatalf("no event %q", kind)
	return Event{}
}

// known returns the manager's description of itself.
func (m *managed) known(t *testing.T) *managerv1.DescribeResponse {
	t.Helper()
	r, err := m.Describe(context.Background(), connect.NewRequest(&managerv1.DescribeRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg
}

// gone waits until the manager does not know a VM any more.
func (m *managed) gone(t *testing.T, vm string) {
	t.Helper()
	testrun.Until(t, "VM "+vm+" is gone", func() bool {
		for _, v := range m.known(t).GetVms() {
			if v.GetId() == vm {
				return false
			}
		}
		return true
	})
}

// nothingLeft waits until no cache is allocated and no VM runs.
func (m *managed) nothingLeft(t *testing.T) {
	t.Helper()
	testrun.Until(t, "no cache and no VM is left", func() bool {
		r := m.known(t)
		return len(r.GetCaches()) == 0 && len(r.GetVms()) == 0
	})
}

// agree compares the manager's record of the cache with the cache, after the running
// task and the duty that tidies: they tell the manager at their end.
func (m *managed) agree(t *testing.T, cache *Cache) {
	t.Helper()
	if err := cache.perform(t.Context(), true, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, "the manager knows the memory that the cache uses", func() bool { return !cache.unsettled.Load() })
	caches := m.known(t).GetCaches()
	if len(caches) != 1 {
		t.Fatalf("caches %v", caches)
	}
	if c := caches[0]; c.GetCapacity() != uint64(cache.Capacity()) || configurationOf(c.GetConfiguration()) != cache.Configuration() {
		t.Errorf("the manager takes %d bytes with %+v for %v", cache.Capacity(), cache.Configuration(), c)
	}
	lent := map[string]int{}
	for _, s := range caches[0].GetGrants() {
		if s.GetPending() {
			t.Errorf("pending: %v", s)
		}
		lent[s.GetVm().GetId()] += int(s.GetRegions())
	}
	for _, r := range cache.Regions() {
		lent[r.VM]--
		if r.State != Stable {
			t.Errorf("%+v", r)
		}
	}
	id, holder := cache.held()
	renewal := &managerv1.RenewRequest{CacheId: id, Holder: holder, Answered: cache.answered.Load()}
	if _, err := m.Renew(t.Context(), connect.NewRequest(renewal)); err != nil {
		t.Errorf("the manager does not know the cache as it was settled last: %v", err)
	}
	for vm, n := range lent {
		if n != 0 {
			t.Errorf("VM %s: the manager counts %d regions more than the cache", vm, n)
		}
	}
}

// content reads all of a cache.
func content(t *testing.T, cache *Cache) []byte {
	t.Helper()
	p := newPump(t, cache, 1)
	defer p.close()
	got := make([]byte, cache.Capacity())
	p.do(false, got, 0, func(c device.Completion) {
		if c.Err != nil {
			t.Error(c.Err)
		}
	})
	p.drain()
	return got
}

// A VM is reclaimed: the cache leaves it in time with its contents, and the VM is released
// before its deadline (R77 to R80).
func TestReclaimed(t *testing.T) {
	forManaged(t, func(t *testing.T, m *managed, cfg Config) {
		cache := m.create(t, m, cfg)
		during(t, cache, int(cache.Capacity()), func() {
			for range 3 { // from every VM, including one that was moved to
				vm := cache.Regions()[0].VM
				stays := cache.Regions()[managedRegions-1].VM
				if !m.vms.Reclaim(vm, time.Hour) {
					t.Fatalf("no VM %s", vm)
				}
				reclaimed := m.expect(t, VMReclaimed)
				if reclaimed.VM != vm || reclaimed.From != 0 || reclaimed.To != 2*managedRegion || time.Until(reclaimed.Deadline) < 50*time.Minute {
					t.Errorf("%+v", reclaimed)
				}
				if left := m.expect(t, VMLeft); left.VM != vm || left.From != 0 || left.To != 2*managedRegion {
					t.Errorf("%+v", left)
				}
				m.gone(t, vm)
				m.agree(t, cache)
				if now := cache.Regions()[managedRegions-1].VM; now != stays {
					t.Errorf("the last region moved from %s, which stays, to %s", stays, now)
				}
			}
		})
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
		m.nothingLeft(t)
	})
}

// Several VMs replace one that held some of the cache's regions (R82).
func TestReclaimedToSeveral(t *testing.T) {
	for _, migration := range []Migration{{}, {Parallel: 2}, {PauseAll: true, PauseReads: true}} {
		m := manage(t, 1, 0)
		node := m.announce(t, 3)
		cache := m.create(t, m, Config{Capacity: 3 * managedRegion, Migration: migration, Transport: "mem"})
		if err := cache.Reshape(t.Context(), managedRegions*managedRegion, SLO{}); err != nil {
			t.Fatal(err)
		}
		if vms := cache.Regions(); vms[0].VM != "large" || vms[2].VM != "large" || vms[3].VM == "large" {
			t.Fatalf("regions %+v", vms)
		}
		stays := cache.Regions()[3].VM
		during(t, cache, int(cache.Capacity()), func() {
			if _, err := m.Reclaim(t.Context(), connect.NewRequest(&managerv1.ReclaimRequest{VmId: "large", NoticeMs: time.Hour.Milliseconds()})); err != nil {
				t.Fatal(err)
			}
			if left := m.expect(t, VMLeft); left.VM != "large" || left.To != 3*managedRegion {
				t.Errorf("%+v", left)
			}
		})
		m.agree(t, cache)
		vms := map[string]bool{}
		for _, r := range cache.Regions() {
			vms[r.VM] = true
		}
		if len(vms) != managedRegions || vms["large"] || !vms[stays] {
			t.Errorf("the cache is on %v, want %s and three others", vms, stays)
		}
		if free := node.VM().Free; free != 3*managedRegion {
			t.Errorf("%d bytes free at the VM that was left", free)
		}
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Regions that a VM's notice is too short for are lost with the VM, and restored from the copy
// (A44).
func TestReclaimedTooSoon(t *testing.T) {
	m := manage(t, 2, 0)
	cache := m.create(t, m, Config{
		Transport: "mem", Configuration: configurations[0], Migration: Migration{BytesPerSecond: 1000},
		Recover: func(_ context.Context, dst []byte, addr int64) error {
			for i := range dst {
				dst[i] = byte((addr + int64(i)) / 1000)
			}
			return nil
		},
	})
	vm := cache.Regions()[0].VM
	m.vms.Reclaim(vm, 50*time.Millisecond)
	if lost := m.expect(t, VMLost); lost.VM != vm {
		t.Errorf("%+v", lost)
	}
	if back := m.expect(t, Restored); back.From != 0 || back.To != 2*managedRegion || back.DataLost {
		t.Errorf("%+v", back)
	}
	for i, b := range content(t, cache) {
		if want := byte(i / 1000); i < 2*managedRegion && b != want {
			t.Fatalf("byte %d is %d, want %d", i, b, want)
		}
	}
	testrun.Until(t, "two VMs are left", func() bool { return len(m.known(t).GetVms()) == 2 })
	m.agree(t, cache)
}

// stuck is a transport to servers on which the copy of the second region does not begin, and fails
// when pointless is closed. Each copy is a second pull, after one that prepares it.
type stuck struct {
	pulls     atomic.Int32
	begun     chan struct{} // closed at that copy
	pointless chan struct{}
}

func (s *stuck) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, serverv1connect.CacheServerServicePullProcedure) && s.pulls.Add(1) == 4 {
		close(s.begun)
		select {
		case <-s.pointless:
		case <-req.Context().Done():
		}
		return nil, errors.New("stuck")
	}
	return http.DefaultTransport.RoundTrip(req)
}

// If a VM is gone too soon, exactly the regions that have not moved yet are lost and restored
// from the copy. Moved regions keep their bytes (A44).
func TestReclaimedHalfway(t *testing.T) {
	m := manage(t, 2, 0)
	way := &stuck{begun: make(chan struct{}), pointless: make(chan struct{})}
	const copied = 0xcc // differs from what the test writes
	cache := m.create(t, m, Config{
		Transport: "mem", Configuration: configurations[0], control: &http.Client{Transport: way},
		Recover: func(_ context.Context, dst []byte, addr int64) error {
			if addr < managedRegion || addr+int64(len(dst)) > 2*managedRegion {
				t.Errorf("%d bytes at %d are recovered: they have moved, or are elsewhere", len(dst), addr)
			}
			copy(dst, bytes.Repeat([]byte{copied}, len(dst)))
			return nil
		},
	})
	written := bytes.Repeat([]byte{0xaa}, managedRegions*managedRegion)
	called := make(chan error, 1)
	if err := cache.Write(t.Context(), written, 0, func(_ int, err error) { called <- err }); err != nil {
		t.Fatal(err)
	}
	if err := testrun.Receive(t, "the write ends", called); err != nil {
		t.Fatal(err)
	}
	vm := cache.Regions()[0].VM
	m.vms.Reclaim(vm, time.Hour)
	select {
	case <-way.begun:
	case <-time.After(testrun.Patience(testrun.Bound)):
		t.Fatal("nothing moves")
	}
	m.vms.Reclaim(vm, time.Millisecond)
	if lost := m.expect(t, VMLost); lost.VM != vm || lost.From != managedRegion || lost.To != 2*managedRegion {
		t.Errorf("%+v", lost)
	}
	close(way.pointless)
	if back := m.expect(t, Restored); back.From != managedRegion || back.To != 2*managedRegion || back.DataLost {
		t.Errorf("%+v", back)
	}
	for i, b := range content(t, cache) {
		want := byte(0xaa)
		if i/managedRegion == 1 {
			want = copied
		}
		if b != want {
			t.Fatalf("byte %d is %#x, want %#x", i, b, want)
		}
	}
	m.gone(t, vm)
	m.agree(t, cache)
}

// A VM is lost: the cache replaces it, and regions on other VMs continue (R83).
func TestLost(t *testing.T) {
	forManaged(t, func(t *testing.T, m *managed, cfg Config) {
		cache := m.create(t, m, cfg)
		during(t, cache, 2*managedRegion, func() { // on the first VM
			for range 3 {
				vm := cache.Regions()[2].VM
				if !m.vms.Kill(vm) {
					t.Fatalf("no VM %s", vm)
				}
				if lost := m.expect(t, VMLost); lost.VM != vm || lost.From != 2*managedRegion || lost.To != 4*managedRegion || lost.Err == nil {
					t.Errorf("%+v", lost)
				}
				if back := m.expect(t, Restored); back.From != 2*managedRegion || back.To != 4*managedRegion || !back.DataLost {
					t.Errorf("%+v", back)
				}
				m.gone(t, vm)
				m.agree(t, cache)
			}
		})
		for i, b := range content(t, cache)[2*managedRegion:] {
			if b != 0 {
				t.Fatalf("byte %d of the new memory is %#x", i, b)
			}
		}
		if err := cache.Delete(t.Context()); err != nil {
			t.Error(err)
		}
		m.nothingLeft(t)
	})
}

// late is a manager whose answers to Allocate arrive after the end of the lease.
type late struct{ *managed }

func (m late) Allocate(ctx context.Context, req *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error) {
	answer, err := m.managed.Allocate(ctx, req)
	for err == nil {
		var r *connect.Response[managerv1.DescribeResponse]
		if r, err = m.Describe(ctx, connect.NewRequest(&managerv1.DescribeRequest{})); err == nil && len(r.Msg.GetCaches()) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return answer, err
}

// If a lease ends before its slow client has connected to the servers, nothing stays lent.
func TestLeaseEndsBeforeTheCacheIsThere(t *testing.T) {
	m := manage(t, 0, time.Millisecond)
	node := m.announce(t, managedRegions)
	cache, err := Create(t.Context(), late{m}, Config{
		Capacity: managedRegions * managedRegion, RegionSize: managedRegion, Transport: "mem",
		Logger: slog.New(slog.DiscardHandler),
	})
	// The server may learn of the end of the cache while Connect runs, and the manager before Allocate
	// is repeated.
	if code := connect.CodeOf(err); code != connect.CodeNotFound && code != connect.CodeUnavailable && code != connect.CodeFailedPrecondition {
		t.Errorf("Create: %v, %v", cache, err)
	}
	// The server may be taking the memory back that it has lent meanwhile, as the manager has asked.
	testrun.Until(t, "nothing stays lent", func() bool { return node.VM().Free == node.VM().Memory })
}
