package redytier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/server"
)

func TestMain(m *testing.M) {
	serveChild()
	serveVM()
	testrun.Main(m)
}

// clusterSecret is the secret of all cache servers that are started here.
const clusterSecret = "the secret of the tests' cache servers"

// cluster is a manager and its VMs in this process. It spreads every cache over all VMs, and
// loses VMs on demand.
type cluster struct {
	managerv1connect.UnimplementedManagerServiceHandler
	client  Manager // of the manager's service
	vms     []*managerv1.Vm
	servers []*server.Server
	events  chan *managerv1.WatchResponse
	// spoil, if set, changes the answer of Allocate.
	spoil func(*managerv1.AllocateResponse)

	// refuse, if set, is asked before each Reallocate.
	refuse func(*managerv1.ReallocateRequest) error

	mu         sync.Mutex
	caches     int            // allocated and not deallocated
	regionSize uint64         // of the cache that was allocated last
	grants     map[string]int // VM of each grant, of all caches
	granted    int
	allocated  int // caches ever
	dead       map[int]bool
	settled    *managerv1.SettleRequest // the last
}

// newCluster starts count VMs of memory bytes on a transport.
func newCluster(t testing.TB, transport string, count int, memory int64) *cluster {
	t.Helper()
	return newClusterOf(t, count, server.Options{Memory: memory, Cores: 16, Transport: transport})
}

func newClusterOf(t testing.TB, count int, opts server.Options) *cluster {
	t.Helper()
	opts.Logger, opts.ControlSecret = slog.New(slog.DiscardHandler), clusterSecret
	c := &cluster{events: make(chan *managerv1.WatchResponse, 16)}
	for i := range count {
		s, err := server.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.TrustSources(controltoken.NewSourceKey(clusterSecret).Public()); err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(s.Handler())
		t.Cleanup(func() {
			web.Close()
			if err := s.Close(); err != nil {
				t.Errorf("closing server %d: %v", i, err)
			}
		})
		c.servers = append(c.servers, s)
		c.vms = append(c.vms, &managerv1.Vm{Id: fmt.Sprintf("vm-%d", i), ControlUrl: web.URL})
	}
	web := httptest.NewUnstartedServer(nil)
	_, web.Config.Handler = managerv1connect.NewManagerServiceHandler(c)
	web.Start()
	t.Cleanup(web.Close)
	c.client = managerv1connect.NewManagerServiceClient(web.Client(), web.URL)
	return c
}

func (c *cluster) Allocate(ctx context.Context, req *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error) {
	m := req.Msg
	c.mu.Lock()
	c.allocated++
	c.caches++
	c.regionSize = m.RegionSize
	id := fmt.Sprintf("cache-%d", c.allocated)
	c.mu.Unlock()
	answer := &managerv1.AllocateResponse{CacheId: id, Configuration: m.Configuration, RegionSize: m.RegionSize}
	if m.Configuration == nil {
		answer.Configuration = &managerv1.Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 4}
	}
	regions := uint32((m.Capacity-1)/m.RegionSize) + 1
	for i := range c.vms {
		share := regions / uint32(len(c.vms)-i)
		regions -= share
		if share > 0 {
			answer.Grants = append(answer.Grants, c.grant(id, i, share, m.RegionSize))
		}
	}
	if c.spoil != nil {
		c.spoil(answer)
	}
	return connect.NewResponse(answer), nil
}

// grant makes a grant of VM i.
func (c *cluster) grant(cache string, i int, regions uint32, regionSize uint64) *managerv1.Grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grants == nil {
		c.grants = map[string]int{}
	}
	c.granted++
	id := fmt.Sprintf("grant-%d", c.granted)
	c.grants[id] = i
	terms := &managerv1.Terms{CacheId: cache, Grant: id, VmId: c.vms[i].Id, Regions: regions, RegionSize: regionSize, Cores: 16}
	return &managerv1.Grant{
		Vm: c.vms[i], Regions: regions, Id: id, Cores: terms.Cores, Terms: terms, Token: controltoken.Grant(clusterSecret, terms),
	}
}

// Reallocate spreads the regions over the living VMs that need not be avoided.
func (c *cluster) Reallocate(ctx context.Context, req *connect.Request[managerv1.ReallocateRequest]) (*connect.Response[managerv1.ReallocateResponse], error) {
	m := req.Msg
	if c.refuse != nil {
		if err := c.refuse(m); err != nil {
			return nil, connect.NewError(connect.CodeResourceExhausted, err)
		}
	}
	var usable []int
	for i, vm := range c.vms {
		lost := slices.ContainsFunc(m.LostVms, func(l *managerv1.VmIncarnation) bool { return l.VmId == vm.Id && l.Start == vm.Start })
		if _, err := c.servers[i].Status(ctx, connect.NewRequest(&serverv1.StatusRequest{})); err == nil && !c.closed(i) && !lost && !slices.Contains(m.AvoidVms, vm.Id) {
			usable = append(usable, i)
		}
	}
	if len(usable) == 0 {
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("no VM is left"))
	}
	answer := &managerv1.ReallocateResponse{Configuration: m.Configuration}
	regions := m.Regions
	c.mu.Lock()
	size := c.regionSize
	c.mu.Unlock()
	for k, i := range usable {
		share := regions / uint32(len(usable)-k)
		regions -= share
		if share > 0 {
			answer.Grants = append(answer.Grants, c.grant(m.CacheId, i, share, size))
		}
	}
	for _, s := range c.servers {
		source := &managerv1.PullSource{Transport: s.Transport(), FabricAddr: s.FabricAddr(), NotAfterUnixMs: time.Now().Add(time.Hour).UnixMilli()}
		controltoken.NewSourceKey(clusterSecret).Sign(source)
		answer.Sources = append(answer.Sources, source)
	}
	return connect.NewResponse(answer), nil
}

// Settle releases every grant that is not named.
func (c *cluster) Settle(ctx context.Context, req *connect.Request[managerv1.SettleRequest]) (*connect.Response[managerv1.SettleResponse], error) {
	m := req.Msg
	c.mu.Lock()
	c.settled = m
	gone := maps.Clone(c.grants)
	for _, s := range m.Grants {
		if _, ok := c.grants[s.Id]; !ok {
			c.mu.Unlock()
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("unknown grant %q", s.Id))
		}
		delete(gone, s.Id)
	}
	for id := range gone {
		delete(c.grants, id)
	}
	c.mu.Unlock()
	for id, i := range gone {
		_, err := c.servers[i].Disconnect(ctx, connect.NewRequest(&serverv1.DisconnectRequest{CacheId: m.CacheId, Grant: id}))
		if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
			return nil, err
		}
	}
	return connect.NewResponse(&managerv1.SettleResponse{}), nil
}

// kill ends server i and the memory that it lends, like a failure.
func (c *cluster) kill(i int) {
	c.mu.Lock()
	if c.dead == nil {
		c.dead = map[int]bool{}
	}
	c.dead[i] = true
	c.mu.Unlock()
	_ = c.servers[i].Close() // the cleanup reports its error
}

func (c *cluster) closed(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead[i]
}

func (c *cluster) Deallocate(ctx context.Context, req *connect.Request[managerv1.DeallocateRequest]) (*connect.Response[managerv1.DeallocateResponse], error) {
	c.mu.Lock()
	c.caches--
	c.mu.Unlock()
	for _, s := range c.servers {
		_, err := s.Disconnect(ctx, connect.NewRequest(&serverv1.DisconnectRequest{CacheId: req.Msg.CacheId}))
		if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
			return nil, err
		}
	}
	return connect.NewResponse(&managerv1.DeallocateResponse{}), nil
}

func (c *cluster) Watch(ctx context.Context, _ *connect.Request[managerv1.WatchRequest], stream *connect.ServerStream[managerv1.WatchResponse]) error {
	for {
		select {
		case e := <-c.events:
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// create makes a cache that is deleted at the end of the test.
func (c *cluster) create(t testing.TB, cfg Config) *Cache {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.ServerTimeout = cmp.Or(cfg.ServerTimeout, testServerTimeout)
	cache, err := Create(t.Context(), c.client, cfg)
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

// nothingLeft fails the test if memory is lent or a cache allocated.
func (c *cluster) nothingLeft(t testing.TB) {
	t.Helper()
	for i, s := range c.servers {
		status, err := s.Status(context.Background(), connect.NewRequest(&serverv1.StatusRequest{}))
		if c.closed(i) {
			continue
		}
		if err != nil || status.Msg.FreeMemory != status.Msg.Memory {
			t.Errorf("server %d: %v, %v", i, status, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.caches != 0 {
		t.Errorf("%d caches remain at the manager", c.caches)
	}
}

// syncCall makes a call of the callback API and waits for it.
func syncCall(t testing.TB, call func(context.Context, []byte, int64, Callback) error, buf []byte, addr int64) error {
	ended := make(chan error, 1)
	if err := call(t.Context(), buf, addr, func(_ int, err error) { ended <- err }); err != nil {
		return err
	}
	return testrun.Receive(t, "the call ends", ended)
}

// testServerTimeout is the ServerTimeout of tests that are not about it: a server that a busy
// machine delays is not lost.
const testServerTimeout = time.Minute

// briefly is the Config.reconnect of tests that end a server and wait for its loss. Their connections
// to other servers do not break, unless the machine is slower than Patience knows.
var briefly = testrun.Patience(100 * time.Millisecond)
