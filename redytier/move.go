package redytier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
)

// Migration configures how regions move between VMs (6.2).
type Migration struct {
	// PauseReads holds the reads of a region, too, while it moves: the baseline of
	// figure 15.
	PauseReads bool
	// PauseAll holds the requests to all regions that move until the last has moved,
	// instead of region by region: the baseline of figure 16.
	PauseAll bool
	// Parallel is the number of regions that move at a time. Default: 1, and 4 of a cache of
	// [Open].
	Parallel int
	// BytesPerSecond limits the copying of each region. 0: no limit.
	BytesPerSecond int64
}

// place is a region's new place: region index of an endpoint's grant.
type place struct {
	region   int
	endpoint *endpoint
	index    uint32
}

// assign returns places for regions 0 to n-1 in the grants of endpoints, in order.
func assign(n int, endpoints []*endpoint) []place {
	var places []place
	for _, e := range endpoints {
		for i := range e.grant.tokens {
			if len(places) < n {
				places = append(places, place{region: len(places), endpoint: e, index: uint32(i)})
			}
		}
	}
	return places
}

// assignTo is assign for the given regions.
func assignTo(regions []int, endpoints []*endpoint) []place {
	places := assign(len(regions), endpoints)
	for i := range places {
		places[i].region = regions[i]
	}
	return places
}

// moves holds the progress of regions that move, for Regions.
type moves struct {
	mu      sync.Mutex        // guards regions
	regions map[int]*progress // those that move, by number
}

// moveStats is how much has moved away from VMs, and how long that took. The manager's
// choice of spot VMs depends on it (A28).
type moveStats struct {
	bytes uint64
	took  time.Duration
}

type progress struct {
	target string
	copied int64
}

func (m *moves) set(region int, target string, copied int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.regions == nil {
		m.regions = map[int]*progress{}
	}
	m.regions[region] = &progress{target, copied}
}

func (m *moves) end(region int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.regions, region)
}

func (m *moves) describe(infos []RegionInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, p := range m.regions {
		if i < len(infos) {
			infos[i].Target, infos[i].Copied = p.target, p.copied
		}
	}
}

// Migrate moves all regions of the cache away from VMs, to others that the manager chooses;
// requests continue (R77 to R82). It returns when the VMs hold nothing of the cache any more.
// If it fails or ctx ends, every region is at its old or its new place and answers, unless
// its server is lost. The handling of reclaimed and lost VMs comes first; Migrate then
// continues.
func (c *Cache) Migrate(ctx context.Context, vms ...string) error {
	err := c.inTurn(ctx, urgency{}, !c.cfg.RefuseBusy, func(ctx context.Context) error { return c.migrate(ctx, vms, false) })
	if err != nil {
		return fmt.Errorf("redytier: migrate from VM %s: %w", strings.Join(vms, ", "), err)
	}
	return nil
}

// migrate moves all regions away from VMs. A voluntary move was proposed by the manager; it
// fails if it is not worth it any more.
func (c *Cache) migrate(ctx context.Context, vms []string, voluntary bool) error {
	t := c.table.Load()
	var regions []int
	for _, g := range t.grants() {
		if slices.Contains(vms, g.vm) {
			regions = append(regions, t.on(g)...)
		}
	}
	slices.Sort(regions)
	if len(regions) == 0 {
		return c.dropIdleGrants(ctx) // they may still have grants that were not returned before
	}
	endpoints, _, err := c.reallocate(ctx, &managerv1.ReallocateRequest{
		CacheId: c.ID(), Regions: uint32(len(regions)), AvoidVms: vms, Voluntary: voluntary, Client: c.cfg.client(),
	})
	if err != nil {
		return err
	}
	return c.leave(ctx, assignTo(regions, endpoints))
}

// leave moves regions to new places, returns all unused memory, and reports the VMs that the
// regions have left. The caller holds the turn.
func (c *Cache) leave(ctx context.Context, places []place) error {
	t := c.table.Load()
	begin := time.Now()
	err := c.move(ctx, places, (*table).replace)
	took := time.Since(begin)
	moved := make(map[string][]int) // by the VM that they left
	now := c.table.Load()
	for _, p := range places {
		if now.regions[p.region].endpoint != p.endpoint {
			continue // it did not move, or is lost
		}
		if from := t.regions[p.region].endpoint.grant.vm; from != p.endpoint.grant.vm {
			moved[from] = append(moved[from], p.region)
		}
		c.moved.bytes += uint64(t.regionSize())
	}
	c.moved.took += took
	err = errors.Join(err, c.returnUnused(ctx)) // the places of regions that did not arrive, too
	for vm, regions := range moved {
		for _, span := range t.spans(regions) {
			c.watcher.report(t.event(Event{Kind: VMLeft, VM: vm}, span))
		}
	}
	return err
}

// reallocate gets more memory from the manager, connects to its servers, and connects every
// session. If the request allows it (Whole), this may be memory for the whole cache. If it
// fails, everything is undone.
func (c *Cache) reallocate(ctx context.Context, req *managerv1.ReallocateRequest) (endpoints []*endpoint, configuration Configuration, err error) {
	defer func() {
		if err != nil {
			c.settle(ctx) // even without an answer: the manager may have granted memory
		}
	}()
	reclaimed := c.keeper.reclaiming()
	if !req.Voluntary { // such a request names exactly the VMs that the manager proposed
		for vm := range reclaimed {
			if !slices.Contains(req.AvoidVms, vm) {
				req.AvoidVms = append(slices.Clip(req.AvoidVms), vm)
			}
		}
	}
	c.change++
	req.Change = c.change
	w := c.cfg.wait()
	defer w.end()
	var answer *connect.Response[managerv1.ReallocateResponse]
	for {
		req.WaitMs = w.call.Milliseconds()
		if answer, err = c.mgr.Reallocate(ctx, connect.NewRequest(req)); err != nil {
			return nil, configuration, fmt.Errorf("reallocate: %w", err)
		}
		if len(answer.Msg.Pending) == 0 {
			break
		}
		w.goesOn(c.log, answer.Msg.Pending)
	}
	configuration = configurationOf(answer.Msg.Configuration)
	if answer.Msg.Configuration == nil {
		configuration = c.Configuration()
	}
	record := c.slo.RecordSize
	if req.Slo != nil {
		record = int(req.Slo.RecordSize)
	}
	if err := c.cfg.allows(configuration, record); err != nil {
		return nil, configuration, err
	}
	regions := req.Regions
	if answer.Msg.Whole && req.Whole > 0 {
		regions = req.Whole
	}
	if err := checkGrants(answer.Msg.Grants, int(regions)); err != nil {
		return nil, configuration, err
	}
	if err := c.keeper.checkTargets(answer.Msg.Grants, reclaimed); err != nil {
		return nil, configuration, err
	}
	t := c.table.Load()
	grants, err := connectGrants(ctx, req.CacheId, &c.cfg, answer.Msg.Grants, configuration, t.per)
	if err != nil {
		return nil, configuration, err
	}
	for _, g := range grants {
		endpoints = append(endpoints, newEndpoint(g, configuration))
	}
	if _, err = transportOf(grants, c.Transport()); err == nil {
		err = c.addEndpoints(ctx, endpoints)
	}
	if err != nil {
		return nil, configuration, errors.Join(err, disconnectAll(ctx, grants))
	}
	return endpoints, configuration, nil
}

// replace sets a region's place. mirrored makes the place a mirror.
func (t *table) replace(p place) {
	r := &t.regions[p.region]
	*r = region{endpoint: p.endpoint, index: p.index, origin: r.origin, epoch: r.epoch}
}

func (t *table) mirrored(p place) {
	r := &t.regions[p.region]
	r.mirror, r.mirrorIndex = p.endpoint, p.index
	r.gate, r.state = 0, Stable
}

// move copies regions to their new places and switches each when it is copied. If a region's
// source is lost it continues with the others; it stops at any other error.
func (c *Cache) move(ctx context.Context, places []place, then func(*table, place)) error {
	if c.cfg.Migration.PauseAll {
		return c.moveTogether(ctx, places, then)
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(max(1, c.cfg.Migration.Parallel))
	for _, p := range places {
		work.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return c.moveTogether(ctx, []place{p}, then)
		})
	}
	return work.Wait()
}

// moveTogether moves regions that are paused together: it gates their writes, drains pending
// ones, copies each region, and switches the table. Sessions then release the requests that
// they held (A40).
func (c *Cache) moveTogether(ctx context.Context, places []place, then func(*table, place)) error {
	sources, endpoints := make([]region, len(places)), make([]*endpoint, len(places))
	c.update(func(t *table) {
		for i, p := range places {
			r := &t.regions[p.region]
			sources[i], endpoints[i] = *r, r.endpoint
			if r.endpoint != nil {
				r.gate, r.state = c.gate(), Quiescing
			}
		}
	})
	err := c.quiesceWrites(ctx, endpoints...)
	copied := make([]bool, len(places))
	for i, p := range places {
		if err == nil && sources[i].endpoint != nil {
			copied[i], err = c.copyRegion(ctx, p, &sources[i])
		}
	}
	c.update(func(t *table) {
		for i, p := range places {
			r := &t.regions[p.region]
			switch {
			case r.endpoint == nil: // lost meanwhile, or before
			case p.endpoint.grant.lost.Load() != nil:
				err = errors.Join(err, unavailable(p.endpoint.grant, *p.endpoint.grant.lost.Load()))
				fallthrough
			case err != nil, !copied[i]:
				r.gate, r.state = sources[i].gate, sources[i].state
			default:
				then(t, p)
			}
		}
	})
	return err
}

// gate returns the kinds of requests that are held while a region moves.
func (c *Cache) gate() gate {
	if c.cfg.Migration.PauseReads {
		return holdWrites | holdReads
	}
	return holdWrites
}

// copyRegion lets the target's server pull one region, and returns true only if the target
// has all of it. A lost source is no error of the move: the region is then lost.
func (c *Cache) copyRegion(ctx context.Context, p place, from *region) (copied bool, err error) {
	c.moves.set(p.region, p.endpoint.grant.vm, 0)
	defer c.moves.end(p.region)
	c.update(func(t *table) {
		if r := &t.regions[p.region]; r.endpoint != nil {
			r.state = Copying
		}
	})
	err = p.endpoint.grant.whileAlive(ctx, func(ctx context.Context) error { return c.pull(ctx, p, from) })
	if err == nil {
		return true, nil
	}
	source := from.endpoint.grant
	if source.lost.Load() == nil && ctx.Err() == nil {
		// Either server may have failed. A source that does not answer is lost.
		if check := c.probe(ctx, source); check != nil && ctx.Err() == nil && !c.inconclusive(source, check, new(int)) {
			c.lose(source, errors.Join(err, check))
		}
	}
	if source.lost.Load() != nil {
		return false, nil
	}
	return false, err
}

func (c *Cache) pull(ctx context.Context, p place, from *region) (err error) {
	source, target := from.endpoint.grant, p.endpoint.grant
	defer func() {
		if err != nil {
			err = fmt.Errorf("VM %s pulls region %d from VM %s: %w", target.vm, p.region, source.vm, err)
		}
	}()
	token := source.tokens[from.index]
	stream, err := target.control().Pull(ctx, connect.NewRequest(&serverv1.PullRequest{
		CacheId: target.cache, Grant: target.id, Ticket: target.ticket[:],
		FabricAddr: source.fabricAddr, SourceTicket: source.ticket[:],
		Regions:        []*serverv1.PullRegion{{SourceToken: token[:], Target: p.index, Bytes: uint64(c.RegionSize())}},
		BytesPerSecond: uint64(c.cfg.Migration.BytesPerSecond),
		Net:            c.cfg.network.At(source.distance).String(),
	}))
	if err != nil {
		return err
	}
	copied := int64(0)
	for stream.Receive() {
		copied = int64(stream.Msg().GetCopied())
		c.moves.set(p.region, target.vm, copied)
	}
	err = errors.Join(stream.Err(), stream.Close())
	if err == nil && copied != c.RegionSize() {
		err = fmt.Errorf("%d of %d bytes copied", copied, c.RegionSize())
	}
	return err
}

// dropIdleGrants returns grants without regions to their servers, and settles the table with
// the manager, even if ctx has ended. It waits for requests that are pending, but not while a
// more urgent operation waits for it. What it does not return, the next call does.
func (c *Cache) dropIdleGrants(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			c.unsettled.Store(true)
		}
	}()
	operation := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlTimeout)
	defer cancel()
	ctx, giveWay := context.WithCancelCause(ctx)
	defer giveWay(nil)
	defer context.AfterFunc(operation, func() {
		if cause := context.Cause(operation); errors.Is(cause, errPreempted) {
			giveWay(cause)
		}
	})()
	t := c.table.Load()
	var idle []*endpoint
	for _, e := range t.endpoints {
		if !slices.ContainsFunc(t.regions, func(r region) bool { return r.endpoint == e || r.mirror == e }) {
			idle = append(idle, e)
		}
	}
	// Twice: until no session reads there (A42), and until none is connected.
	if err := c.quiesce(ctx); err != nil {
		return err
	}
	c.removeEndpoints(idle)
	stay := t.grants()
	for _, e := range idle {
		if !slices.Contains(stay, e.grant) && !slices.Contains(c.leaving, e.grant) {
			c.leaving = append(c.leaving, e.grant)
		}
	}
	if err := c.quiesce(ctx); err != nil {
		return err
	}
	if err := disconnectAll(ctx, c.leaving); err != nil {
		c.log.Warn("returning unused regions to the servers", "err", err)
	}
	c.leaving = nil
	c.settle(ctx)
	return nil
}

// settle tells the manager what the cache consists of. If that fails, the watcher repeats it.
// The caller holds the turn.
func (c *Cache) settle(ctx context.Context) {
	if c.gone() {
		return // the manager does not know the cache
	}
	err := c.settleAs(context.WithoutCancel(ctx), c.Configuration())
	c.unsettled.Store(err != nil)
	if err != nil {
		c.log.Warn("settling the cache with the manager", "err", err)
	}
}

// settleAs tells the manager what the cache consists of, with a given configuration.
func (c *Cache) settleAs(ctx context.Context, configuration Configuration) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	t := c.table.Load()
	c.change++
	req := &managerv1.SettleRequest{
		CacheId: c.ID(), Capacity: uint64(t.capacity), Slo: c.slo.proto(), Configuration: configuration.proto(),
		MovedBytes: c.moved.bytes, MovedMs: c.moved.took.Milliseconds(),
		Change: c.change,
	}
	grants := slices.DeleteFunc(t.grants(), func(g *grant) bool { return g.cache != req.CacheId }) // of a former id
	for _, g := range grants {
		req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: g.id, Regions: g.regions.Load()})
	}
	answer, err := c.mgr.Settle(ctx, connect.NewRequest(req))
	switch {
	case connect.CodeOf(err) == connect.CodeResourceExhausted:
		return fmt.Errorf("settle: %w: %w", ErrCores, err)
	case err != nil:
		return fmt.Errorf("settle: %w", err)
	}
	for i, signed := range answer.Msg.GetGrants() {
		if i < len(grants) && signed.GetId() == grants[i].id {
			grants[i].signed.Store(signed)
		}
	}
	c.moved = moveStats{}
	return nil
}

// settleAgain is settle without the turn, which it takes if it is free.
func (c *Cache) settleAgain(ctx context.Context) {
	if c.turn.acquire(ctx, &claim{}, false) != nil {
		return // the running operation settles
	}
	defer c.turn.release()
	c.settle(ctx)
}
