package manager

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
)

// world is the environment of random operations. It is an allocator whose VMs exist by name
// only, and the control API of all servers, launched and registered, at one address, where
// it records the connected grants. It checks that no VM is launched twice, and that only
// lent memory is released.
type world struct {
	serverv1connect.UnimplementedCacheServerServiceHandler

	m     *Manager
	l     *leader // of m, even after its end
	clock *handClock
	opts  Options
	url   string // of the servers, whose paths are their ids
	t     *testing.T
	host  allocator.Host

	mu     sync.Mutex
	launch int
	vms    map[string]uint64 // memory, by id
	lent   map[lease]string  // VM by connected grant
}

type lease struct{ cache, grant string }

func (w *world) Transport() string       { return "tcp" }
func (w *world) Attach(h allocator.Host) { w.host = h }
func (w *world) Close() error            { return nil }

func (w *world) Offers(context.Context, string, string) ([]plan.Offer, error) {
	return []plan.Offer{{Type: "test", Fitted: true, Available: -1}}, nil
}

func (w *world) Launch(_ context.Context, spec allocator.VMSpec) error {
	w.mu.Lock()
	w.launch++
	fails := w.launch%7 == 0
	if _, twice := w.vms[spec.ID]; twice {
		w.t.Errorf("VM %s is launched twice", spec.ID)
	}
	if !fails {
		w.vms[spec.ID] = spec.Memory
	}
	w.mu.Unlock()
	if fails {
		return fmt.Errorf("VM %s: the seventh never starts", spec.ID)
	}
	return w.host.Register(testVM(spec.ID, spec.Memory, spec.Cores, w.control(spec.ID)))
}

func (w *world) Terminate(_ context.Context, id, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(id)
	return nil
}

// end is called under mu.
func (w *world) end(id string) {
	delete(w.vms, id)
	for l, vm := range w.lent {
		if vm == id {
			delete(w.lent, l)
		}
	}
}

// kill ends some launched VM, if any.
func (w *world) kill() {
	w.mu.Lock()
	var victim string
	for id := range w.vms {
		victim = id
		break
	}
	w.end(victim)
	w.mu.Unlock()
	if victim != "" {
		w.host.Failed(victim, "killed")
	}
}

// connect does what a client does with new grants.
func (w *world) connect(cache string, grants []*managerv1.Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range grants {
		id := s.GetVm().GetId()
		if _, running := w.vms[id]; running || !strings.HasPrefix(id, launchedPrefix) {
			w.lent[lease{cache, s.GetId()}] = id
		}
	}
}

// Disconnect implements the servers' control API.
func (w *world) Disconnect(_ context.Context, req *connect.Request[serverv1.DisconnectRequest]) (*connect.Response[serverv1.DisconnectResponse], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := false
	for l := range w.lent {
		if l.cache == req.Msg.GetCacheId() && (req.Msg.GetGrant() == "" || req.Msg.GetGrant() == l.grant) {
			delete(w.lent, l)
			found = true
		}
	}
	if !found {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no lease"))
	}
	return connect.NewResponse(&serverv1.DisconnectResponse{}), nil
}

// Status implements the servers' control API.
func (w *world) Status(_ context.Context, req *connect.Request[serverv1.StatusRequest]) (*connect.Response[serverv1.StatusResponse], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answer := &serverv1.StatusResponse{}
	for l, vm := range w.lent {
		if vm == req.Header().Get(serverHeader) {
			answer.Grants = append(answer.Grants, &serverv1.Grant{CacheId: l.cache, Id: l.grant, Bytes: 1, SilentMs: time.Hour.Milliseconds()})
		}
	}
	return connect.NewResponse(answer), nil
}

// serverHeader holds the id of the called server.
const serverHeader = "Server-Id"

func (w *world) control(id string) string { return w.url + "/" + id }

// route serves the control APIs of all servers at one address.
func route(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		id, path, _ := strings.Cut(req.URL.Path[1:], "/")
		req.Header.Set(serverHeader, id)
		req.URL.Path = "/" + path
		next.ServeHTTP(rw, req)
	})
}

func testVM(id string, memory uint64, cores uint32, controlURL string) node.VM {
	return node.VM{ID: id, Start: 1, ControlURL: controlURL, Transport: "tcp", FabricAddr: "nowhere:1", Memory: memory, Free: memory, Cores: cores}
}

func newWorld(t *testing.T, workers int) (*world, []*random) {
	t.Helper()
	w := &world{t: t, vms: make(map[string]uint64), lent: make(map[lease]string), clock: &handClock{now: time.Unix(1_000_000, 0)}}
	mux := http.NewServeMux()
	mux.Handle(serverv1connect.NewCacheServerServiceHandler(w))
	web := httptest.NewServer(route(mux))
	t.Cleanup(web.Close)
	w.url = web.URL
	w.opts = Options{
		Allocator: w, store: newCrashStore(), VMMemory: 3 << 20, Heartbeat: time.Hour, Lease: randomLease, now: w.clock.read, Logger: quiet(),
	}
	w.start()
	t.Cleanup(func() {
		if err := w.m.Close(testContext(t)); err != nil {
			t.Error(err)
		}
	})
	rs := make([]*random, workers)
	for i := range rs {
		rs[i] = &random{world: w, rng: rand.New(rand.NewPCG(uint64(i), 1))}
	}
	return w, rs
}

// start starts a manager with the world's options.
func (w *world) start() {
	w.t.Helper()
	m, err := New(w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.m, w.l = m, m.led()
}

// rest makes all steps that are due now, and waits until they are done. The manager's monitor
// fails the reclaimed VMs whose deadline has passed, which may be those of a manager that crashed
// before; it does so at a time that no test knows.
func (w *world) rest(t *testing.T) {
	t.Helper()
	w.l.departAt(w.clock.read())
	w.l.rest(t)
}

// check compares the manager's catalog with the VMs while no call is pending: every running
// VM serves exactly one cache, every byte that a server does not offer is granted to a
// cache, and a cache's grants are connected. The manager's monitor may change something meanwhile, such as to
// end a lease once it is not blind any more; then the comparison is made again.
func (w *world) check(t *testing.T) {
	t.Helper()
	for {
		before := w.l.state.changed()
		w.rest(t)
		w.l.state.check(t)
		if faults := w.faults(); len(faults) == 0 || w.l.state.changed() == before {
			for _, fault := range faults {
				t.Error(fault)
			}
			return
		}
	}
}

// changed returns the number of changes of the state.
func (c *state) changed() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.txns
}

// faults returns how the manager's catalog and the VMs differ.
func (w *world) faults() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	r := w.l.state.describe()
	w.mu.Lock()
	defer w.mu.Unlock()
	owners := make(map[string]string)
	promised := make(map[string]uint64)
	for _, ca := range r.GetCaches() {
		for _, s := range ca.GetGrants() {
			id := s.GetVm().GetId()
			if !s.GetVm().GetHealthy() {
				continue
			}
			promised[id] += uint64(s.GetRegions()) * ca.GetRegionSize()
			if other, ok := owners[id]; ok && other != ca.GetId() && strings.HasPrefix(id, launchedPrefix) {
				fault("VM %s has two owners", id)
			}
			owners[id] = ca.GetId()
			if _, ok := w.lent[lease{ca.GetId(), s.GetId()}]; !ok {
				fault("grant %s of cache %s on VM %s is not connected any more", s.GetId(), ca.GetId(), id)
			}
		}
	}
	for _, v := range r.GetVms() {
		if v.GetHealthy() && v.GetMemory()-v.GetFreeMemory() != promised[v.GetId()] {
			fault("VM %s: %d of %d bytes free, %d promised", v.GetId(), v.GetFreeMemory(), v.GetMemory(), promised[v.GetId()])
		}
	}
	for id, memory := range w.vms {
		if owners[id] == "" || promised[id] > memory {
			fault("VM %s of %d bytes belongs to %q, which was promised %d", id, memory, owners[id], promised[id])
		}
	}
	for id, owner := range owners {
		if _, running := w.vms[id]; !running && strings.HasPrefix(id, launchedPrefix) {
			fault("VM %s does not run, and cache %s thinks it does", id, owner)
		}
	}
	return faults
}

// check compares the reservations of every VM with the grants of the caches.
func (c *state) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes, threads, grants := make(map[*vm]uint64), make(map[*vm]uint32), make(map[*vm]int)
	for _, ca := range c.caches {
		all := ca.all()
		if ca.request != nil {
			all = append(all, ca.request.grants...)
		}
		for _, g := range all {
			bytes[g.vm] += g.bytes()
			threads[g.vm] += g.cores
			grants[g.vm]++
		}
	}
	for _, g := range c.grants {
		if g.phase == leaving {
			bytes[g.vm] += g.bytes()
			threads[g.vm] += g.cores
		}
	}
	for id, v := range c.vms {
		if _, listed := c.warms[v]; listed != v.warm {
			t.Errorf("VM %s: warm %v, listed as such %v", id, v.warm, listed)
		}
		if v.reserved != bytes[v] || v.threads != threads[v] || v.lent != grants[v] || v.reserved > v.memory || v.threads > v.Cores {
			t.Errorf("VM %s: %d grants, %d of %d bytes and %d of %d threads are reserved, caches have %d, %d and %d",
				id, v.lent, v.reserved, v.memory, v.threads, v.Cores, grants[v], bytes[v], threads[v])
		}
	}
}

// finish deallocates all caches, and checks that nothing remains.
func (w *world) finish(t *testing.T, rs []*random) {
	t.Helper()
	ctx := testContext(t)
	for _, r := range rs {
		for len(r.caches) > 0 {
			if err := r.deallocate(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Grants that servers have and no cache has, strays, are found by audits.
	for range 3 {
		for id := range 2 {
			vm := testVM(fmt.Sprintf("pool-%d", id), 8<<20, 2, w.control(fmt.Sprintf("pool-%d", id)))
			if err := w.l.state.register(vm, "", w.clock.read().Add(24*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		w.l.expireAt(w.clock.advance(6 * time.Hour))
		w.l.rest(t)
	}
	if len(w.lent) != 0 {
		t.Errorf("still lent: %v", w.lent)
	}
	w.l.state.check(t)
	if d := w.l.state.describe(); len(w.vms) != 0 || len(d.GetCaches()) != 0 || len(d.GetVms()) > 2 {
		t.Errorf("left over: %d VMs, %v", len(w.vms), d)
	}
}

// Random operations from several goroutines, checked at the end. Clients may connect grants
// that were taken from them before.
func TestRandomControlConcurrent(t *testing.T) {
	w, rs := newWorld(t, 4)
	var all sync.WaitGroup
	for _, r := range rs {
		all.Go(func() {
			for i := range 700 {
				if err := r.step(testContext(t)); err != nil {
					t.Errorf("step %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	w.finish(t, rs)
}
