package manager

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
)

// counting is an allocator whose VMs are names. It checks that none is launched
// twice, and that the memory given back is the memory taken.
type counting struct {
	t    *testing.T
	host Host

	mu     sync.Mutex
	launch int
	vms    map[string]uint64 // memory, by id
}

func (a *counting) Transport() string { return "tcp" }
func (a *counting) Attach(h Host)     { a.host = h }
func (a *counting) Close() error      { return nil }

func (a *counting) Launch(_ context.Context, spec VMSpec) error {
	a.mu.Lock()
	a.launch++
	fails := a.launch%7 == 0
	if _, twice := a.vms[spec.ID]; twice {
		a.t.Errorf("VM %s is launched twice", spec.ID)
	}
	if !fails {
		a.vms[spec.ID] = spec.Memory
	}
	a.mu.Unlock()
	if fails {
		return fmt.Errorf("VM %s: the seventh never starts", spec.ID)
	}
	return a.host.Register(testVM(spec.ID, spec.Memory, spec.Cores, "http://127.0.0.1:1"))
}

func (a *counting) Terminate(_ context.Context, id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.vms, id)
	return nil
}

// kill ends some VM, if there is one, and returns whether.
func (a *counting) kill() bool {
	a.mu.Lock()
	var victim string
	for id := range a.vms {
		victim = id
		break
	}
	delete(a.vms, victim)
	a.mu.Unlock()
	if victim != "" {
		a.host.Failed(victim, "killed")
	}
	return victim != ""
}

func testVM(id string, memory uint64, cores uint32, controlURL string) VM {
	return VM{ID: id, ControlURL: controlURL, Transport: "tcp", FabricAddr: "nowhere:1", Memory: memory, Free: memory, Cores: cores}
}

// forgetful is a registered server's control API: no cache ever connected.
func forgetful(t *testing.T) string {
	mux := http.NewServeMux()
	mux.Handle(serverv1connect.NewCacheServerServiceHandler(noLeases{}))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

type noLeases struct {
	serverv1connect.UnimplementedCacheServerServiceHandler
}

func (noLeases) Disconnect(context.Context, *connect.Request[serverv1.DisconnectRequest]) (*connect.Response[serverv1.DisconnectResponse], error) {
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no lease"))
}

// random does random control operations on a manager with an allocator and two
// registered servers.
type random struct {
	m         *Manager
	allocator *counting
	rng       *rand.Rand
	control   string   // URL of the registered servers
	caches    []string // allocated by this one, and not deallocated
}

// step returns an error for an answer that must not come.
func (r *random) step(ctx context.Context) error {
	switch n := r.rng.IntN(20); {
	case n < 9:
		return r.allocate(ctx)
	case n < 16:
		return r.deallocate(ctx)
	case n < 18:
		r.allocator.kill()
	case n < 19:
		// A registered server is started again; what it held is lost.
		return r.m.catalog.register(testVM(fmt.Sprintf("pool-%d", r.rng.IntN(2)), 8<<20, 2, r.control), time.Now().Add(time.Hour))
	default:
		r.m.fail(fmt.Sprintf("pool-%d", r.rng.IntN(2)), "unplugged")
	}
	return nil
}

func (r *random) allocate(ctx context.Context) error {
	req := &managerv1.AllocateRequest{Capacity: 1 + r.rng.Uint64N(12<<20), RegionSize: 1 << 20}
	if s := uint32(r.rng.IntN(4)); s > 0 {
		req.Configuration = &managerv1.Configuration{ClientThreads: s, ServerThreads: s, BatchSize: 2, QueueDepth: 4}
	}
	answer, err := r.m.allocate(ctx, req)
	if err != nil {
		if connect.CodeOf(err) != connect.CodeUnavailable {
			return err
		}
		return nil
	}
	var regions uint64
	for _, s := range answer.GetShares() {
		regions += uint64(s.GetRegions())
	}
	if regions*answer.GetRegionSize() < req.Capacity {
		return fmt.Errorf("%d regions for %d bytes", regions, req.Capacity)
	}
	r.caches = append(r.caches, answer.GetCacheId())
	return nil
}

func (r *random) deallocate(ctx context.Context) error {
	if len(r.caches) == 0 {
		return nil
	}
	i := r.rng.IntN(len(r.caches))
	id := r.caches[i]
	r.caches = append(r.caches[:i], r.caches[i+1:]...)
	if _, err := (service{m: r.m}).Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id})); err != nil {
		return err
	}
	if _, err := (service{m: r.m}).Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: id})); connect.CodeOf(err) != connect.CodeNotFound {
		return fmt.Errorf("deallocated twice: %w", err)
	}
	return nil
}

// checkBooks holds the manager's catalog against the allocator's VMs while
// nothing is under way: every VM that runs serves exactly one cache, and every
// byte that a server does not offer is promised to a cache.
func checkBooks(t *testing.T, m *Manager, a *counting) {
	t.Helper()
	m.catalog.check(t)
	r := m.catalog.describe()
	owners := make(map[string]int)
	promised := make(map[string]uint64)
	for _, ca := range r.GetCaches() {
		for _, s := range ca.GetShares() {
			if s.GetVm().GetHealthy() {
				owners[s.GetVm().GetId()]++
				promised[s.GetVm().GetId()] += uint64(s.GetRegions()) * ca.GetRegionSize()
			}
		}
	}
	for _, v := range r.GetVms() {
		if v.GetHealthy() && v.GetMemory()-v.GetFreeMemory() != promised[v.GetId()] {
			t.Errorf("VM %s: %d of %d bytes free, %d promised", v.GetId(), v.GetFreeMemory(), v.GetMemory(), promised[v.GetId()])
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, memory := range a.vms {
		if owners[id] != 1 || promised[id] != memory {
			t.Errorf("VM %s of %d bytes has %d owners, who were promised %d", id, memory, owners[id], promised[id])
		}
	}
	for id, n := range owners {
		if _, running := a.vms[id]; !running && n > 0 && len(id) > len("pool-0") {
			t.Errorf("VM %s does not run, and %d caches think it does", id, n)
		}
	}
}

// check holds what every VM has reserved against the shares of the caches.
func (c *catalog) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes, threads := make(map[*vm]uint64), make(map[*vm]uint32)
	for _, ca := range c.caches {
		for _, s := range ca.shares {
			bytes[s.vm] += s.bytes
			threads[s.vm] += s.cores
		}
	}
	for id, v := range c.vms {
		if v.reserved != bytes[v] || v.threads != threads[v] || v.reserved > v.memory || v.threads > v.Cores {
			t.Errorf("VM %s: %d of %d bytes and %d of %d threads are reserved, caches have %d and %d",
				id, v.reserved, v.memory, v.threads, v.Cores, bytes[v], threads[v])
		}
	}
}

func newRandom(t *testing.T, workers int) (*Manager, *counting, []*random) {
	t.Helper()
	a := &counting{t: t, vms: make(map[string]uint64)}
	m, err := New(Options{Allocator: a, VMMemory: 3 << 20, Heartbeat: time.Hour, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(testContext(t)); err != nil {
			t.Error(err)
		}
	})
	control := forgetful(t)
	rs := make([]*random, workers)
	for i := range rs {
		rs[i] = &random{m: m, allocator: a, rng: rand.New(rand.NewPCG(uint64(i), 1)), control: control}
	}
	return m, a, rs
}

func finish(t *testing.T, m *Manager, a *counting, rs []*random) {
	t.Helper()
	checkBooks(t, m, a)
	ctx := testContext(t)
	for _, r := range rs {
		for len(r.caches) > 0 {
			if err := r.deallocate(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	checkBooks(t, m, a)
	if d := m.catalog.describe(); len(a.vms) != 0 || len(d.GetCaches()) != 0 || len(d.GetVms()) > 2 {
		t.Errorf("left over: %d VMs, %v", len(a.vms), d)
	}
}

// Random allocations, deallocations and failures, checked after each.
func TestRandomControl(t *testing.T) {
	m, a, rs := newRandom(t, 1)
	ctx := testContext(t)
	for i := range 2000 {
		if err := rs[0].step(ctx); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if checkBooks(t, m, a); t.Failed() {
			t.Fatalf("after step %d", i)
		}
	}
	finish(t, m, a, rs)
}

// The same from several goroutines at once, checked at the end.
func TestRandomControlConcurrent(t *testing.T) {
	m, a, rs := newRandom(t, 4)
	ctx := testContext(t)
	var all sync.WaitGroup
	for _, r := range rs {
		all.Go(func() {
			for i := range 500 {
				if err := r.step(ctx); err != nil {
					t.Errorf("step %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	finish(t, m, a, rs)
}
