package redytier

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/internal/memhttp"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
	"github.com/redykv/redykv/server"
)

// scheduleStartVM is how long a VM takes to start.
const scheduleStartVM = time.Second

// managerHost is the name of the manager in a memhttp.Network. Servers have those of their VMs,
// and the cache's client is clientParty.
const (
	managerHost = "manager"
	clientParty = "client"
)

// scheduleCloud is an allocator on virtual time. Its VMs are cache servers of this process
// that serve their control APIs in a memhttp.Network, and register and send heartbeats as
// processes do. It outlives managers.
type scheduleCloud struct {
	t       *testing.T
	network *memhttp.Network
	market  *menu.Market

	mu      sync.Mutex // guards the fields below
	host    allocator.Host
	running map[string]*scheduleVM
	living  sync.WaitGroup
}

// scheduleVM is one VM of a scheduleCloud. The cloud's mu guards its fields.
type scheduleVM struct {
	spec   allocator.VMSpec
	server *server.Server // nil: it starts
	secret string
	leaves time.Time // deadline of its reclaim; zero: none
	life   context.Context
	end    context.CancelFunc
}

// scheduleMenu is a menu of VMs with memory for two, four and eight regions of a size. Prices
// differ enough that a change makes moves worth it.
func scheduleMenu(region int64) menu.Menu {
	return menu.Menu{Version: menu.Version, Types: []menu.Type{
		scheduleType("two", 2*region, 0.1), scheduleType("four", 4*region, 0.25), scheduleType("eight", 8*region, 0.9),
	}}
}

func scheduleType(name string, memory int64, price float64) menu.Type {
	return menu.Type{
		Name: name, Memory: menu.Size(memory), Cores: 4, Sold: []menu.Sold{{CloudRegion: "here", Distance: 1, Price: price}},
	}
}

func newScheduleCloud(t *testing.T, network *memhttp.Network, m menu.Menu) *scheduleCloud {
	t.Helper()
	c := &scheduleCloud{t: t, network: network, running: map[string]*scheduleVM{}}
	var err error
	if c.market, err = menu.NewMarket(m, menu.Options{Step: -1}, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// price sets the price of the VMs of a type.
func (c *scheduleCloud) price(kind string, dollars float64) error {
	return c.market.Change([]menu.Kind{{Type: kind, Distance: 1}}, menu.Change{Price: new(plan.Dollars(dollars))})
}

// Transport implements [allocator.Allocator], as do the following methods.
func (c *scheduleCloud) Transport() string { return "mem" }

func (c *scheduleCloud) Attach(h allocator.Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.host = h
}

func (c *scheduleCloud) manager() allocator.Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host
}

func (c *scheduleCloud) Close() error { return nil } // its VMs run on

func (c *scheduleCloud) Offers(_ context.Context, region, _ string) ([]plan.Offer, error) {
	return c.market.Offers(region)
}

func (c *scheduleCloud) Launch(_ context.Context, spec allocator.VMSpec) error {
	if err := c.market.Sell(spec.ID, spec.Kind); err != nil {
		return err
	}
	v := &scheduleVM{spec: spec, secret: controltoken.NewSecret()}
	v.life, v.end = context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[spec.ID] != nil {
		c.t.Errorf("VM %s is launched twice", spec.ID)
	}
	c.running[spec.ID] = v
	c.living.Go(func() {
		if clock.Sleep(v.life, scheduleStartVM) {
			c.start(v)
		}
	})
	return nil
}

func (c *scheduleCloud) Terminate(_ context.Context, id, _ string) error {
	c.kill(id)
	return nil
}

var _ allocator.Restorer = (*scheduleCloud)(nil)

// Restore implements [allocator.Restorer]. It repeats the notices of reclaimed VMs.
func (c *scheduleCloud) Restore(_ context.Context, _ uint64, lent, idle []string) (running []string, err error) {
	known := map[string]bool{}
	for _, id := range slices.Concat(lent, idle) {
		known[id] = true
	}
	for id, leaves := range c.vms() {
		if !known[id] {
			c.kill(id)
			continue
		}
		running = append(running, id)
		if !leaves.IsZero() {
			c.manager().Reclaimed(id, leaves, "reclaimed")
		}
	}
	return running, nil
}

// vms returns the deadlines of the VMs that run, zero for those that are not reclaimed.
func (c *scheduleCloud) vms() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]time.Time{}
	for id, v := range c.running {
		all[id] = v.leaves
	}
	return all
}

// VMFailed and the following methods implement [menu.Events].
func (c *scheduleCloud) VMFailed(string)                   {} // its market lets none fail
func (c *scheduleCloud) VMReclaimed(string, time.Duration) {}
func (c *scheduleCloud) MarketChanged() {
	if h := c.manager(); h != nil {
		h.OffersChanged()
	}
}

// kill ends a VM with its memory, and returns false if there is none. Nobody is told.
func (c *scheduleCloud) kill(id string) bool {
	c.mu.Lock()
	v := c.running[id]
	delete(c.running, id)
	c.mu.Unlock()
	if v == nil {
		return false
	}
	v.end()
	c.network.Serve(id, nil)
	c.mu.Lock()
	s := v.server
	c.mu.Unlock()
	if s != nil {
		if err := s.Close(); err != nil {
			c.t.Errorf("closing VM %s: %v", id, err)
		}
	}
	c.market.GiveBack(id)
	return true
}

// reclaim takes a VM back after a notice. The manager terminates it; if there is no manager, or
// it does not hear of it, the cloud does.
func (c *scheduleCloud) reclaim(id string, notice time.Duration) {
	c.mu.Lock()
	v := c.running[id]
	if v == nil || !v.leaves.IsZero() {
		c.mu.Unlock()
		return
	}
	v.leaves = time.Now().Add(notice)
	c.mu.Unlock()
	c.living.Go(func() {
		if clock.Sleep(v.life, notice) && c.kill(id) {
			c.manager().Failed(id, "its notice has ended")
		}
	})
	c.manager().Reclaimed(id, v.leaves, "reclaimed")
}

// start starts a VM's server, which registers with the manager and sends heartbeats until the
// VM ends.
func (c *scheduleCloud) start(v *scheduleVM) {
	id := v.spec.ID
	s, err := server.New(server.Options{
		VM: id, Memory: int64(v.spec.Memory), Cores: int(v.spec.Cores), Transport: "mem", ControlSecret: v.secret,
		Pinning: server.PinNever, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Errorf("starting VM %s: %v", id, err)
		return
	}
	c.mu.Lock()
	v.server = s
	alive := c.running[id] == v
	c.mu.Unlock()
	if !alive {
		if err := s.Close(); err != nil {
			c.t.Errorf("closing VM %s: %v", id, err)
		}
		return
	}
	c.network.Serve(id, s.Handler())
	if v.life.Err() != nil {
		c.network.Serve(id, nil)
	}
	mgr := managerv1connect.NewManagerServiceClient(&http.Client{Transport: c.network.From(id)}, "http://"+managerHost)
	for wait, known := time.Duration(0), false; clock.Sleep(v.life, wait); {
		var beat time.Duration
		if beat, err = v.announce(mgr, known); err == nil {
			known, wait = true, beat
			continue
		}
		known = known && connect.CodeOf(err) != connect.CodeNotFound && !errors.Is(err, errDisobeys)
		wait = time.Second
	}
}

var errDisobeys = errors.New("the server obeys another manager")

// announce registers a VM, or sends a heartbeat of one that is known, and returns the time to
// the next.
func (v *scheduleVM) announce(mgr managerv1connect.ManagerServiceClient, known bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(v.life, 3*time.Second)
	defer cancel()
	status, err := v.server.Status(ctx, connect.NewRequest(&serverv1.StatusRequest{}))
	if err != nil {
		return 0, err
	}
	free := status.Msg.GetFreeMemory()
	var in *managerv1.Incarnation
	wait := time.Second
	if known {
		r, err := mgr.Heartbeat(ctx, connect.NewRequest(&managerv1.HeartbeatRequest{VmId: v.spec.ID, FreeMemory: free, Start: 1}))
		if err != nil {
			return 0, err
		}
		in = r.Msg.GetIncarnation()
	} else {
		vm := node.VM{
			ID: v.spec.ID, Start: 1, ControlURL: "http://" + v.spec.ID, Transport: "mem", FabricAddr: v.server.FabricAddr(),
			Memory: v.spec.Memory, Free: free, Cores: v.spec.Cores, Distance: 1,
		}
		r, err := mgr.Register(ctx, connect.NewRequest(&managerv1.RegisterRequest{Vm: vm.Proto(true), ControlSecret: []byte(v.secret)}))
		if err != nil {
			return 0, err
		}
		if err := v.server.TrustSources(r.Msg.GetSourceKey()); err != nil {
			return 0, err
		}
		in, wait = r.Msg.GetIncarnation(), time.Duration(r.Msg.GetHeartbeatMs())*time.Millisecond
	}
	incarnation := controltoken.Incarnation{Epoch: in.GetEpoch(), ID: in.GetId(), Bound: time.Duration(in.GetBoundMs()) * time.Millisecond}
	if err := v.server.Obey(incarnation); err != nil {
		return 0, errors.Join(errDisobeys, err)
	}
	return wait, nil
}

// lent returns the bytes that the VMs lend to each cache, by the VM.
func (c *scheduleCloud) lent() map[string]map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]map[string]uint64{}
	for id, v := range c.running {
		all[id] = map[string]uint64{}
		if v.server == nil {
			continue
		}
		status, err := v.server.Status(context.Background(), connect.NewRequest(&serverv1.StatusRequest{}))
		if err != nil {
			c.t.Errorf("status of VM %s: %v", id, err)
			continue
		}
		for _, g := range status.Msg.GetGrants() {
			all[id][g.GetCacheId()] += g.GetBytes()
		}
	}
	return all
}

// close ends all VMs.
func (c *scheduleCloud) close() {
	for id := range c.vms() {
		c.kill(id)
	}
	c.living.Wait()
	c.market.Close()
}
