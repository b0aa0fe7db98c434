package manager

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// The simulation runs a number of caches for some time, while VMs are reclaimed and fail,
// prices change, clients die and managers restart. Then follows a time of rest.
const (
	simChaos   = time.Hour
	simRest    = 40 * time.Minute // longer than a cache's dwell time
	simRegion  = 1 << 30
	simRate    = 1 << 30 // migration rate in bytes a second
	simLease   = time.Minute
	simStartVM = 15 * time.Second
	simNotice  = 2 * time.Minute // of all types
)

// simCaches returns the number of simulated caches.
func simCaches() int { return testrun.Raced(200, 40) }

// simulation has a cloud, clients, and a sequence of managers.
type simulation struct {
	t      *testing.T
	cloud  *simCloud
	store  *crashStore             // of the current manager
	api    atomic.Pointer[service] // of the current manager
	calm   atomic.Bool             // clients no longer die
	living sync.WaitGroup          // clients

	lost, moved, died, restarted, crashed, dear atomic.Int64

	mu   sync.Mutex
	away [][2]time.Time // intervals without a manager
}

// start starts a manager from the earlier one's state, with the default policy.
func (s *simulation) start() {
	s.store = s.store.next()
	m, err := New(Options{
		Allocator: s.cloud, store: s.store, Lease: simLease, Heartbeat: 10 * time.Second, Provision: simStartVM, MigrationRate: simRate, Logger: quiet(),
	})
	if err != nil {
		s.t.Error(err)
		return
	}
	s.api.Store(&service{m: m})
}

func (s *simulation) stop() {
	if err := s.api.Load().m.Close(context.Background()); err != nil {
		s.t.Error(err)
	}
}

// restart closes the manager, or lets it crash at one of its next changes, and starts
// another one after a while.
func (s *simulation) restart(rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		s.store.arm(1, rng.IntN(2) == 0)
		<-s.api.Load().m.ctx.Done()
		s.crashed.Add(1)
	}
	from := time.Now()
	s.stop()
	time.Sleep(upTo(rng, 30*time.Second))
	s.start()
	s.restarted.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = append(s.away, [2]time.Time{from, time.Now()})
}

// alone reports whether there was no manager at some time since then.
func (s *simulation) alone(since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.away, func(a [2]time.Time) bool { return a[1].After(since) })
}

// simClient makes the same calls as redytier.
type simClient struct {
	*simulation
	rng     *rand.Rand
	id      string
	regions uint32
	grants  []*managerv1.Grant
	change  uint64    // last number that was used
	ended   time.Time // its last move
}

// live allocates one cache after the other until ctx ends. A client that dies abandons its
// cache and starts again.
func (c *simClient) live(ctx context.Context) {
	defer c.living.Done()
	for ctx.Err() == nil {
		if c.allocate(ctx) && c.keep(ctx) {
			return
		}
	}
}

func (c *simClient) allocate(ctx context.Context) bool {
	c.regions = 1 + c.rng.Uint32N(40)
	req := &managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: uint64(c.regions) * simRegion, RegionSize: simRegion}
	if c.rng.IntN(4) > 0 {
		req.DurationSeconds = 3600
	}
	if threads := c.rng.Uint32N(5); threads > 0 {
		req.Configuration = &managerv1.Configuration{ClientThreads: threads, ServerThreads: threads, BatchSize: 8, QueueDepth: 8}
	}
	r, err := c.api.Load().Allocate(ctx, connect.NewRequest(req))
	if err != nil {
		if code := connect.CodeOf(err); code != connect.CodeUnavailable && code != connect.CodeCanceled {
			c.t.Errorf("allocate %d regions: %v", c.regions, err)
		}
		clock.Sleep(ctx, time.Second+upTo(c.rng, 5*time.Second))
		return false
	}
	c.change, c.id, c.grants = 0, r.Msg.GetCacheId(), r.Msg.GetGrants()
	return true
}

// renew renews the lease until ctx ends, also while the client moves, as a client does.
func (c *simClient) renew(ctx context.Context) {
	for wait := simLease / 4; clock.Sleep(ctx, wait); {
		_, err := c.api.Load().Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: c.id}))
		switch {
		case err == nil:
			wait = simLease / 4
		case connect.CodeOf(err) == connect.CodeNotFound && ctx.Err() == nil:
			c.t.Errorf("cache %s is not known any more", c.id)
			return
		default:
			wait = time.Second
		}
	}
}

// keep renews the lease and follows events. It returns false if the client has died, and
// true if ctx has ended and the cache is deallocated.
func (c *simClient) keep(ctx context.Context) bool {
	renewing, stop := context.WithCancel(ctx)
	var renewals sync.WaitGroup
	renewals.Go(func() { c.renew(renewing) })
	defer func() {
		stop()
		renewals.Wait()
	}()
	death := time.Now().Add(time.Duration(c.rng.ExpFloat64() * float64(4*time.Hour)))
	heard := uint64(0) // sequence number of the last event
	for {
		if !clock.Sleep(ctx, time.Second+upTo(c.rng, time.Second)) {
			_, err := c.api.Load().Deallocate(context.Background(), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: c.id}))
			if err != nil {
				c.t.Errorf("deallocate: %v", err)
			}
			return true
		}
		if !c.calm.Load() && time.Now().After(death) {
			c.died.Add(1)
			return false
		}
		l, err := c.api.Load().m.leading()
		if err != nil {
			continue
		}
		ca, ok := l.state.watched(c.id)
		if !ok {
			continue
		}
		events, _, _ := l.state.eventsAfter(ca, nil, heard, time.Now())
		for _, e := range events {
			heard = e.GetSequence()
			c.hear(ctx, e)
		}
	}
}

func (c *simClient) hear(ctx context.Context, e *managerv1.WatchResponse) {
	switch e.GetKind() {
	case managerv1.WatchResponse_KIND_VM_FAILED:
		c.leave(ctx, []string{e.GetVmId()}, false, time.Time{})
	case managerv1.WatchResponse_KIND_VM_RECLAIMED:
		c.leave(ctx, []string{e.GetVmId()}, true, time.UnixMilli(e.GetDeadlineUnixMs()))
	case managerv1.WatchResponse_KIND_STATE:
		for _, g := range e.GetState().GetGrants() {
			if v := g.GetVm(); !v.GetHealthy() {
				c.leave(ctx, []string{v.GetId()}, false, time.Time{})
			} else if v.GetLeaving() {
				c.leave(ctx, []string{v.GetId()}, true, time.UnixMilli(v.GetDeadlineUnixMs()))
			}
		}
	case managerv1.WatchResponse_KIND_VM_DEAR:
		if c.move(ctx, e.GetVmIds(), true, true, time.Time{}) == nil {
			c.dear.Add(1)
		}
	}
}

// leave moves away from VMs, repeatedly until it succeeds. The menu has enough VMs, so it
// may fail only while there is no manager.
func (c *simClient) leave(ctx context.Context, vms []string, copied bool, deadline time.Time) {
	for ctx.Err() == nil {
		err := c.move(ctx, vms, copied, false, deadline)
		if err == nil {
			return
		}
		if code := connect.CodeOf(err); code != connect.CodeUnavailable && code != connect.CodeCanceled {
			c.t.Errorf("cache %s leaves %v: %v", c.id, vms, err)
		}
		clock.Sleep(ctx, time.Second+upTo(c.rng, 2*time.Second))
	}
}

// move allocates memory for the regions on some VMs, copies them, and settles.
func (c *simClient) move(ctx context.Context, vms []string, copied, voluntary bool, deadline time.Time) error {
	from := make(map[string]bool)
	for _, id := range vms {
		from[id] = true
	}
	var regions uint32
	var stay []*managerv1.Grant
	for _, s := range c.grants {
		if from[s.GetVm().GetId()] {
			regions += s.GetRegions()
		} else {
			stay = append(stay, s)
		}
	}
	if regions == 0 {
		return nil
	}
	c.change++
	r, err := c.api.Load().Reallocate(ctx, connect.NewRequest(&managerv1.ReallocateRequest{
		CacheId: c.id, Change: c.change, Regions: regions, AvoidVms: vms, Voluntary: voluntary,
	}))
	if err != nil {
		return err
	}
	took := time.Duration(0)
	if copied {
		took = time.Duration(regions) * time.Second * simRegion / simRate
		clock.Sleep(ctx, took)
		// It may be too late only if there was no manager, or another move of the cache was
		// pending.
		if !deadline.IsZero() && time.Now().After(deadline) {
			c.lost.Add(1)
			if noticed := deadline.Add(-simNotice); !c.alone(noticed) && c.ended.Before(noticed) {
				c.t.Errorf("cache %s has left %v by %v, %v too late", c.id, vms, time.Now(), time.Since(deadline))
			}
		}
	}
	c.grants, c.ended = append(stay, r.Msg.GetGrants()...), time.Now()
	c.moved.Add(1)
	c.change++
	req := &managerv1.SettleRequest{CacheId: c.id, Change: c.change, Capacity: uint64(c.regions) * simRegion, MovedBytes: uint64(regions) * simRegion, MovedMs: took.Milliseconds()}
	for _, s := range c.grants {
		req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: s.GetId(), Regions: s.GetRegions()})
	}
	for {
		if _, err = c.api.Load().Settle(ctx, connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeUnavailable || ctx.Err() != nil {
			break
		}
		clock.Sleep(ctx, time.Second)
	}
	if err != nil && ctx.Err() == nil {
		c.t.Errorf("cache %s settles: %v", c.id, err)
	}
	return nil
}

// TestSimulation checks that no VM is leaked or used twice, that no cache stays without its
// memory, and that at rest the caches cost at most 5 % more than necessary.
func TestSimulation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := testrun.Seed(t, 0)
		s := &simulation{t: t, store: newCrashStore(), cloud: &simCloud{t: t, running: make(map[string]*simVM)}}
		var err error
		if s.cloud.market, err = menu.NewMarket(simMenu(), menu.Options{Seed: seed}, s.cloud); err != nil {
			t.Fatal(err)
		}
		s.start()
		ctx, cancel := context.WithCancel(t.Context())
		for i := range simCaches() {
			c := &simClient{simulation: s, rng: rand.New(rand.NewPCG(uint64(i), seed+1))}
			s.living.Add(1)
			go c.live(ctx)
		}
		rng := rand.New(rand.NewPCG(seed+2, 4))
		for end := time.Now().Add(simChaos); time.Now().Before(end); {
			time.Sleep(10*time.Minute + upTo(rng, 10*time.Minute))
			s.check()
			s.restart(rng)
		}
		s.calm.Store(true)
		s.freeze()
		time.Sleep(simRest)
		s.check()
		s.checkRest()

		cancel()
		s.living.Wait()
		time.Sleep(2 * simLease) // for the last clients that died
		s.cloud.mu.Lock()
		if n := len(s.cloud.running); n > 0 {
			t.Errorf("%d VMs run for nobody", n)
		}
		s.cloud.mu.Unlock()
		s.stop()
		s.cloud.market.Close()
		time.Sleep(simStartVM) // for VMs that were still starting
		t.Logf("%d moves, of which %d to cheaper VMs and %d too late; %d clients died, %d managers were started again, %d of them after a crash",
			s.moved.Load(), s.dear.Load(), s.lost.Load(), s.died.Load(), s.restarted.Load(), s.crashed.Load())
		for what, n := range map[string]int64{
			"moves": s.moved.Load(), "moves to cheaper VMs": s.dear.Load(), "deaths": s.died.Load(), "restarts": s.restarted.Load(), "crashes": s.crashed.Load(),
		} {
			if n == 0 {
				t.Errorf("no %s: nothing was tried", what)
			}
		}
	})
}

// freeze stops changes of prices, and reclaims and failures of VMs.
func (s *simulation) freeze() {
	offers, err := s.cloud.market.Offers("")
	if err != nil {
		s.t.Fatal(err)
	}
	s.cloud.market.Close()
	m := simMenu()
	for i, typ := range m.Types {
		for j := range typ.Sold {
			sold := &m.Types[i].Sold[j]
			sold.MeanTimeToFailure = 0
			if sold.Spot == nil {
				continue
			}
			sold.Spot.MeanTimeToReclaim = 0
			for _, o := range offers {
				if o.Type == typ.Name && o.Spot && o.Distance == sold.Distance {
					sold.Spot.Price = o.Price.Dollars()
				}
			}
		}
	}
	s.stop()
	market, err := menu.NewMarket(m, menu.Options{Step: -1}, s.cloud)
	if err != nil {
		s.t.Fatal(err)
	}
	s.cloud.mu.Lock()
	s.cloud.market = market
	running := make(map[string]menu.Kind)
	for id, v := range s.cloud.running {
		running[id] = v.spec.Kind
	}
	s.cloud.mu.Unlock()
	for id, kind := range running {
		if err := market.Resume(id, kind); err != nil {
			s.t.Error(err)
		}
	}
	s.start()
}

// check checks that each VM serves one cache.
func (s *simulation) check() {
	m := s.api.Load().m
	owners := make(map[string]string)
	for _, ca := range m.led().state.describe().GetCaches() {
		for _, grant := range ca.GetGrants() {
			id := grant.GetVm().GetId()
			if other := owners[id]; other != "" && other != ca.GetId() {
				s.t.Errorf("VM %s serves caches %s and %s", id, ca.GetId(), other)
			}
			owners[id] = ca.GetId()
		}
	}
}

// checkRest checks the caches at rest.
func (s *simulation) checkRest() {
	m := s.api.Load().m
	m.led().state.check(s.t)
	described := m.led().state.describe()
	if n := len(described.GetCaches()); n != simCaches() {
		s.t.Errorf("%d caches, want %d", n, simCaches())
	}
	used := make(map[string]bool)
	var paid, least plan.Price
	for _, ca := range described.GetCaches() {
		var regions uint64
		for _, grant := range ca.GetGrants() {
			id := grant.GetVm().GetId()
			used[id] = true
			s.cloud.mu.Lock()
			running := s.cloud.running[id] != nil
			s.cloud.mu.Unlock()
			if grant.GetPending() || !grant.GetVm().GetHealthy() || !running {
				s.t.Errorf("cache %s: grant %v, whose VM runs: %v", ca.GetId(), grant, running)
			}
			regions += uint64(grant.GetRegions())
		}
		if regions*simRegion != ca.GetCapacity() {
			s.t.Errorf("cache %s of %d bytes has %d regions", ca.GetId(), ca.GetCapacity(), regions)
		}
		price, err := s.optimum(m, ca)
		if err != nil {
			s.t.Error(err)
		}
		paid, least = paid+plan.Price(ca.GetPriceMicros()), least+price
	}
	s.cloud.mu.Lock()
	for id := range s.cloud.running {
		if !used[id] {
			s.t.Errorf("VM %s runs for nobody", id)
		}
	}
	s.cloud.mu.Unlock()
	s.t.Logf("at rest %v are paid, %v would be the least", paid, least)
	if float64(paid) > 1.05*float64(least) {
		s.t.Errorf("%v are paid, %v would do", paid, least)
	}
}

// optimum returns the price of a cache if it were allocated now.
func (s *simulation) optimum(m *Manager, ca *managerv1.Cache) (plan.Price, error) {
	from, err := m.led().supply(context.Background(), from{})
	if err != nil {
		return 0, err
	}
	d := plan.Demand{
		RegionSize: simRegion, Regions: int(ca.GetCapacity() / simRegion), Configs: map[int]plan.Config{0: planConfig(ca.GetConfiguration())},
		Transport: "tcp", Duration: time.Duration(ca.GetDurationSeconds()) * time.Second,
	}
	p, err := plan.Choose(d, from.offers, nil, from.policy)
	var none *plan.NoneError
	if errors.As(err, &none) {
		return 0, fmt.Errorf("cache %s: %w\n%v", ca.GetId(), err, none.Explanation)
	}
	if err != nil {
		return 0, err
	}
	return p.Price, nil
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
