package redytier

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/memhttp"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/model"
)

// scheduleFabric is the client's way to the servers' memory: the mem transport, whose
// connections to each server can be cut and made faulty.
type scheduleFabric struct {
	fabric.Provider

	mu      sync.Mutex // guards the fields below
	ways    map[string]*fabric.Faulty
	down    map[string]bool
	opts    fabric.FaultOptions
	refusal error // of all dials; nil: none
}

// Dial implements [fabric.Provider]. A server that cannot be reached does not answer.
func (f *scheduleFabric) Dial(ctx context.Context, addr string, private []byte, depth int) (fabric.QueuePair, error) {
	f.mu.Lock()
	way := f.ways[addr]
	if way == nil {
		way = fabric.WithFaults(f.Provider, f.opts)
		f.ways[addr] = way
	}
	down, refusal := f.down[addr], f.refusal
	f.mu.Unlock()
	switch {
	case down:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case refusal != nil:
		return nil, refusal
	}
	return way.Dial(ctx, addr, private, depth)
}

// set makes a server reachable or not. Its connections end when it is not.
func (f *scheduleFabric) set(addr string, up bool) {
	f.mu.Lock()
	way := f.ways[addr]
	f.down[addr] = !up
	f.mu.Unlock()
	if way != nil && !up {
		way.CutAll()
	}
}

// refuse makes all dials fail with an error, or with none.
func (f *scheduleFabric) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = err
}

// cutAll ends all connections.
func (f *scheduleFabric) cutAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, way := range f.ways {
		way.CutAll()
	}
}

// faults sets the faults of all connections.
func (f *scheduleFabric) faults(opts fabric.FaultOptions) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opts = opts
	for _, way := range f.ways {
		way.Set(opts)
	}
}

// scheduleWorld is a manager, a cloud of VMs, and the network between them and the client.
type scheduleWorld struct {
	t       *testing.T
	network *memhttp.Network
	cloud   *scheduleCloud
	fabric  *scheduleFabric
	client  Manager
	models  []*model.Model
	state   string        // directory of the manager's catalog
	former  *http.Client  // api.HTTPClient of before
	restart chan struct{} // holds a token while no manager is being started

	mu      sync.Mutex // guards the fields below
	manager *manager.Manager
	faults  []*scheduleFault
}

// scheduleFault is what happens to some calls.
type scheduleFault struct {
	match func(memhttp.Call) bool
	fault memhttp.Fault
	left  int // calls that it happens to; below 0: all
}

// Timing of the world's manager.
const (
	scheduleLease = 30 * time.Second
	scheduleDwell = 20 * time.Second
)

// newScheduleWorld starts a world with VMs of a menu. It is called inside a bubble of virtual
// time.
func newScheduleWorld(t *testing.T, vms menu.Menu, models []*model.Model) *scheduleWorld {
	t.Helper()
	w := &scheduleWorld{
		t: t, network: new(memhttp.Network), models: models, state: filepath.Join(t.TempDir(), "state"), former: api.HTTPClient,
		fabric: &scheduleFabric{ways: map[string]*fabric.Faulty{}, down: map[string]bool{}}, restart: make(chan struct{}, 1),
	}
	w.restart <- struct{}{}
	w.network.Fail(w.fault)
	w.cloud = newScheduleCloud(t, w.network, vms)
	w.client = managerv1connect.NewManagerServiceClient(&http.Client{Transport: w.network.From(clientParty)}, "http://"+managerHost)
	api.HTTPClient = &http.Client{Transport: w.network.From(managerHost)}
	w.startManager()
	return w
}

// config makes a cache of this world of a configuration.
func (w *scheduleWorld) config(cfg Config) Config {
	cfg.Transport, cfg.control = "mem", &http.Client{Transport: w.network.From(clientParty)}
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Tuning.Pinning = PinNever
	cfg.wrap = func(p fabric.Provider) fabric.Provider {
		w.fabric.Provider = p
		return w.fabric
	}
	return cfg
}

func (w *scheduleWorld) startManager() {
	m, err := manager.New(manager.Options{
		Allocator: w.cloud, State: w.state, URL: "http://" + managerHost, Models: w.models,
		Lease: scheduleLease, MigrationRate: 1 << 20, Economy: manager.Economy{Every: 10 * time.Second, Dwell: scheduleDwell},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Errorf("starting the manager: %v", err)
		return
	}
	w.mu.Lock()
	w.manager = m
	w.mu.Unlock()
	w.network.Serve(managerHost, m.Handler())
}

func (w *scheduleWorld) stopManager() {
	w.network.Serve(managerHost, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := w.manager.Close(ctx); err != nil {
		w.t.Errorf("closing the manager: %v", err)
	}
}

// restartManager starts another manager after a while, perhaps without the state of the first.
func (w *scheduleWorld) restartManager(away time.Duration, forget bool) {
	<-w.restart
	defer func() { w.restart <- struct{}{} }()
	w.stopManager()
	time.Sleep(away)
	if forget {
		if err := os.RemoveAll(w.state); err != nil {
			w.t.Error(err)
		}
	}
	w.startManager()
}

// fault decides about a call.
func (w *scheduleWorld) fault(c memhttp.Call) memhttp.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		if f.left != 0 && f.match(c) {
			f.left--
			return f.fault
		}
	}
	return memhttp.None
}

// disturb makes a fault happen to matching calls, count of them or all if that is negative, for
// a while. If it drops them, calls that are under way end as well.
func (w *scheduleWorld) disturb(fault memhttp.Fault, count int, match func(memhttp.Call) bool, d time.Duration) {
	f := &scheduleFault{match: match, fault: fault, left: count}
	w.mu.Lock()
	w.faults = append(w.faults, f)
	w.mu.Unlock()
	if fault == memhttp.Dropped {
		w.network.Cut(match)
	}
	time.Sleep(d)
	w.mu.Lock()
	f.left = 0
	w.mu.Unlock()
	w.network.Reset(match)
}

// between matches the calls between two parties, in both directions.
func between(a, b string) func(memhttp.Call) bool {
	return func(c memhttp.Call) bool { return c.From == a && c.To == b || c.From == b && c.To == a }
}

// of matches the calls of and to a party.
func of(party string) func(memhttp.Call) bool {
	return func(c memhttp.Call) bool { return c.From == party || c.To == party }
}

// known returns what the manager knows.
func (w *scheduleWorld) known() (*managerv1.DescribeResponse, error) {
	mgr := managerv1connect.NewManagerServiceClient(&http.Client{Transport: w.network.From("operator")}, "http://"+managerHost)
	r, err := mgr.Describe(context.Background(), connect.NewRequest(&managerv1.DescribeRequest{}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// close ends the world.
func (w *scheduleWorld) close() {
	w.stopManager()
	w.cloud.close()
	api.HTTPClient = w.former
}
