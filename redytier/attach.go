package redytier

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
)

// This file takes a cache up that another client has left: the manager makes this client its
// holder, the servers end the former client's accesses and keep the bytes, and the table gets the
// places of the regions that the former client has told the manager.

// IdentityVersion is the present version of [Identity].
const IdentityVersion = 1

// Identity names a cache for the client that takes it up next ([Config].Attach). It can be stored
// as JSON. It has no secret, but whoever may call the manager can take the cache and its bytes by
// it: a file of it should be readable by its owner only.
type Identity struct {
	Version  int    `json:"version"`          // IdentityVersion
	Cache    string `json:"cache"`            // the manager's id
	Holder   uint64 `json:"holder,omitempty"` // number of the client that had it; a lower one than the present costs a call
	Capacity int64  `json:"capacity"`         // bytes; for the application, as Reshape changes it
}

// Check returns an error for an identity that names no cache, or is of another version.
func (id Identity) Check() error {
	switch {
	case id.Version != IdentityVersion:
		return fmt.Errorf("redytier: identity of a cache, version %d: want %d", id.Version, IdentityVersion)
	case id.Cache == "":
		return errors.New("redytier: identity without a cache")
	}
	return nil
}

// Identity returns what another client needs to take the cache up. It changes when the cache is
// allocated again (event CacheDeleted and then Restored), and is zero before the first allocation
// of a cache that was created late.
func (c *Cache) Identity() Identity {
	id, holder := c.held()
	if id == "" {
		return Identity{}
	}
	return Identity{Version: IdentityVersion, Cache: id, Holder: holder, Capacity: c.Capacity()}
}

// Linger is how long the manager keeps the cache after its lease has ended: Config.Linger, or the
// manager's maximum if that is less.
func (c *Cache) Linger() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.linger
}

// held returns the manager's name for the cache and this client's number.
func (c *Cache) held() (id string, holder uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.id, c.known.holder
}

func (c *Cache) holder() uint64 {
	_, holder := c.held()
	return holder
}

// Discard deletes the cache, which nobody is going to take up. A client that uses it is fenced
// out. It is no error if there is no such cache.
func (id Identity) Discard(ctx context.Context, mgr Manager) error {
	err := id.Check()
	if err == nil {
		err = id.discard(ctx, mgr)
	}
	if err != nil && !errors.Is(err, ErrNoCache) {
		return fmt.Errorf("redytier: discard cache %s: %w", id.Cache, err)
	}
	return nil
}

func (id Identity) discard(ctx context.Context, mgr Manager) error {
	answer, err := id.succeed(ctx, mgr, &managerv1.AttachRequest{})
	if err != nil {
		return err
	}
	return deallocate(ctx, mgr, id.Cache, answer.GetHolder())
}

// Detach ends this client, as Delete does, and leaves the memory to another one, which takes it up
// by the cache's Identity before its lease, and then its Linger, has ended. Pending and later
// requests end with ErrDeleted: an application waits for its requests first. The manager is told
// where all regions are. If that fails, the cache has ended as well, and those that moved since
// the manager was last told are lost for the next client. It waits for callbacks, so it must not
// be called from one.
func (c *Cache) Detach(ctx context.Context) error {
	c.deleting.Lock()
	defer c.deleting.Unlock()
	if c.released {
		return ErrDeleted
	}
	c.end()
	c.release()
	id, _ := c.held()
	var err error
	switch {
	case c.taken.Load():
		err = ErrTaken
	case c.gone():
		err = fmt.Errorf("%w: %w", ErrNoCache, errForgotten)
	default:
		err = c.settleAs(ctx, c.Configuration(), nil)
	}
	if err != nil {
		return fmt.Errorf("redytier: detach from cache %q: %w", id, err)
	}
	return nil
}

// attach serves Create with Config.Attach.
func attach(ctx context.Context, mgr Manager, cfg Config) (*Cache, error) {
	id, want := *cfg.Attach, cfg.Capacity
	if err := id.Check(); err != nil {
		return nil, err
	}
	// The cache's own values take their place.
	cfg.Capacity, cfg.RegionSize, cfg.Configuration, cfg.SLO = max(want, MinRegionSize), 0, Configuration{}, SLO{}
	if err := cfg.ensureDefaults(); err != nil {
		return nil, err
	}
	answer, err := id.succeed(ctx, mgr, &managerv1.AttachRequest{
		Capacity: uint64(want), LingerMs: new(cfg.Linger.Milliseconds()), Client: cfg.client(),
	})
	var c *Cache
	if err == nil {
		c, err = takeUp(ctx, mgr, cfg, id.Cache, answer)
	}
	if err != nil {
		return nil, fmt.Errorf("redytier: attach to cache %s: %w", id.Cache, err)
	}
	return c, nil
}

// succeed makes the caller the cache's holder. While the manager does not answer, as it may be
// restarted as well, it asks again, for controlTimeout.
func (id Identity) succeed(ctx context.Context, mgr Manager, req *managerv1.AttachRequest) (*managerv1.AttachResponse, error) {
	req.CacheId, req.RequestId, req.Holder = id.Cache, rand.Text(), id.Holder
	patience, cancel := clock.WithAwakeTimeout(ctx, controlTimeout, context.DeadlineExceeded)
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, time.Second) {
		answer, err := mgr.Attach(patience, connect.NewRequest(req))
		if err == nil {
			return answer.Msg, nil
		}
		if ctx.Err() == nil && patience.Err() != nil {
			return nil, fmt.Errorf("the manager does not answer: %w: %w", context.Cause(patience), err)
		}
		if present, ok := holderOf(err); ok && present >= id.Holder { // else the manager has an older state
			// Others have had the cache since this identity was stored, or get it right now. The
			// last one keeps it.
			req.Holder, req.RequestId = present, rand.Text()
		}
		switch connect.CodeOf(err) {
		case connect.CodeNotFound:
			return nil, fmt.Errorf("%w: %w", ErrNoCache, err)
		case connect.CodeUnavailable, connect.CodeFailedPrecondition:
		default:
			return nil, err
		}
		if _, ok := holderOf(err); !ok && connect.CodeOf(err) == connect.CodeFailedPrecondition || !clock.Sleep(patience, clock.Jitter(wait)) {
			return nil, err
		}
	}
}

// takeUp builds the cache from the manager's answer. If it fails, the memory stays with the
// servers.
func takeUp(ctx context.Context, mgr Manager, cfg Config, id string, m *managerv1.AttachResponse) (_ *Cache, err error) {
	if m.GetCapacity() > maxCapacity || m.GetRegionSize() > maxCapacity {
		return nil, fmt.Errorf("the manager answers with a capacity of %d bytes and regions of %d", m.GetCapacity(), m.GetRegionSize())
	}
	cfg.Capacity, cfg.RegionSize, cfg.SLO = int64(m.GetCapacity()), int64(m.GetRegionSize()), sloOf(m.GetSlo())
	cfg.Duration = time.Duration(m.GetDurationSeconds()) * time.Second
	if err := checkCapacity(cfg.Capacity, cfg.RegionSize); err != nil {
		return nil, err
	}
	configuration := configurationOf(m.GetConfiguration())
	if err := cfg.allows(configuration, cfg.SLO.RecordSize); err != nil {
		return nil, err
	}
	regions := newTable(cfg.Capacity, cfg.RegionSize, configuration).need(cfg.Capacity)
	places, err := placedBy(m.GetPlaces(), m.GetGrants(), regions)
	if err != nil {
		return nil, err
	}
	per := int(min(max(m.GetPer(), 1), maxRegions))
	lease := time.Duration(m.GetLeaseMs()) * time.Millisecond
	var grants []*grant
	var causes []error
	holder := &managerv1.RenewRequest{CacheId: id, Holder: m.GetHolder()}
	err = whileRenewed(ctx, mgr, holder, lease, func(ctx context.Context) (err error) {
		grants, causes, err = takeUpGrants(ctx, id, &cfg, m.GetGrants(), places, configuration, per)
		return err
	})
	if err != nil {
		return nil, err
	}
	provider, err := cfg.open(m.GetTransport())
	if err != nil {
		return nil, err
	}
	cfg.Transport, cfg.Logger = m.GetTransport(), cfg.Logger.With("cache", id)
	c, err := newCache(ctx, mgr, "", cfg, configuration, nil, provider)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.end()
		}
	}()
	c.mu.Lock()
	c.known = identity{id: id, holder: m.GetHolder(), linger: time.Duration(m.GetLingerMs()) * time.Millisecond}
	c.mu.Unlock()
	c.change.Store(m.GetChange())
	c.answered.Store(m.GetChange())
	endpoints := make([]*endpoint, len(grants))
	var all []*endpoint
	for i, g := range grants {
		if g != nil {
			endpoints[i] = newEndpoint(g, configuration)
			all = append(all, endpoints[i])
		}
	}
	if err := c.addEndpoints(ctx, all); err != nil {
		return nil, cmp.Or(stillThere(ctx, mgr, holder), err) // a server that refuses may have a third client
	}
	c.update(func(t *table) { t.takeUp(regions, per, places, endpoints, causes) })
	threads, err := c.clients.newThreads(configuration) // for these VMs
	if err == nil {
		err = c.clients.replace(ctx, threads)
	}
	if err != nil {
		return nil, err
	}
	c.startWatching(id, lease)
	c.restoreTaken(m.GetGrants(), causes, len(all))
	return c, nil
}

var errNoPlace = errors.New("the former client ended while the region moved, or had lost it")

// takeUp gives the regions of a new table the places that a former client has left them.
func (t *table) takeUp(regions, per int, places []placed, endpoints []*endpoint, causes []error) {
	t.regions.resize(regions)
	t.per = per
	for i, e := range endpoints {
		if e != nil && e.grant.lost.Load() != nil { // since its server has answered
			endpoints[i], causes[i] = nil, unavailable(e.grant, *e.grant.lost.Load())
		}
	}
	unknown := fmt.Errorf("%w: %w", ErrRegionUnavailable, errNoPlace)
	lost := slices.Repeat([]*error{&unknown}, regions)
	for _, p := range places {
		switch e := endpoints[p.grant]; {
		case e == nil:
			lost[p.region] = &causes[p.grant]
		case int(p.index) < len(e.grant.tokens):
			t.restore(filled{place{p.region, e, p.index}})
		} // else it was released
	}
	for i, cause := range lost {
		if t.regions.at(i).endpoint == nil {
			t.regions.edit(i).lose(cause)
		}
	}
}

// restoreTaken has the regions replaced that were lost when the cache was taken up, and grants
// returned that it does not use. known is the number of grants that it uses.
func (c *Cache) restoreTaken(grants []*managerv1.Grant, causes []error, known int) {
	if c.Err() == nil && known == len(grants) {
		return
	}
	c.unsettled.Store(true)
	c.controller.do(func() {
		d := &c.controller.duties
		d.tidy.call()
		for i, g := range grants {
			if causes[i] != nil {
				d.lost(incarnation{g.GetVm().GetId(), g.GetVm().GetStart()})
			}
		}
		d.lost()
	})
}

// takeUpGrants asks the servers of the grants with regions for their memory. A grant that its
// server does not have any more, or of a server that does not answer, is nil, for a cause. Such
// an end of the whole call is an error: this process lacks resources, one side does not trust the
// other, ctx has ended, or a third client has taken the cache up.
func takeUpGrants(ctx context.Context, cache string, cfg *Config, shares []*managerv1.Grant, places []placed, c Configuration, of int) ([]*grant, []error, error) {
	grants, causes := make([]*grant, len(shares)), make([]error, len(shares))
	used := make([]bool, len(shares))
	for _, p := range places {
		used[p.grant] = true
	}
	asking, within := errgroup.WithContext(ctx)
	asking.SetLimit(serversAtOnce)
	for i, share := range shares {
		if !used[i] {
			continue
		}
		asking.Go(func() error {
			g := newGrant(cache, cfg, share)
			err := g.takeUp(within, share, c, of)
			switch {
			case err == nil:
				grants[i] = g
				return nil
			case ctx.Err() != nil || within.Err() != nil || isLocal(err) || isDistrust(err):
				return err
			case connect.CodeOf(err) == connect.CodeFailedPrecondition:
				return fmt.Errorf("%w: %w", ErrTaken, err)
			}
			causes[i] = unavailable(g, err)
			cfg.Logger.Warn("memory of a cache that is taken up is lost", "cache", cache, "vm", g.vm, "regions", share.GetRegions(), "err", err)
			return nil
		})
	}
	return grants, causes, asking.Wait()
}

// takeUp asks a server for the memory of a grant that a former client had.
func (g *grant) takeUp(ctx context.Context, share *managerv1.Grant, c Configuration, of int) error {
	if !share.GetVm().GetHealthy() {
		return errors.New("the manager says that the VM has failed")
	}
	answer, err := g.connect(ctx, share, c, of, true)
	if err != nil {
		return err
	}
	n := min(int(share.GetRegions()), len(answer.RegionTokens)) // the last ones may have been released
	answer.RegionTokens = answer.RegionTokens[:n]
	return g.accept(answer, n)
}

func sloOf(m *managerv1.Slo) SLO {
	return SLO{
		MaxLatency: time.Duration(m.GetMaxLatencyUs() * float64(time.Microsecond)), MinThroughput: m.GetMinThroughputMops() * 1e6,
		RecordSize: int(m.GetRecordSize()), Operations: Operations(m.GetOperations()),
	}
}
