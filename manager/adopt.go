package manager

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
)

// Adopt enters a cache that the catalog does not know: it is empty, an older copy or another one. The
// client says what the cache is. It has got each grant from a manager, as the token shows, which is made
// with the server's secret; and the server shows that it lends the grant, and to no later holder.

// errNotShown is the error of a grant whose server does not show it, or not yet.
var errNotShown = errors.New("is not shown by its server")

// adopt serves Adopt.
func (l *leader) adopt(ctx context.Context, req *managerv1.AdoptRequest) (*managerv1.AdoptResponse, error) {
	ca, err := l.adopted(ctx, req)
	if err != nil {
		return nil, refuse(err, connect.CodeInvalidArgument)
	}
	grants, err := l.shown(ctx, ca, req.GetGrants())
	more := 0
	if err == nil {
		more, err = l.state.adopt(ca, grants, l.term())
	}
	if err != nil {
		return nil, refuse(err, connect.CodeUnavailable)
	}
	if more > 0 {
		l.opts.Logger.Warn("cache adopted: the catalog did not know these grants", "cache", ca.id, "capacity", units.Size(ca.demand.capacity).String(), "grants", more)
	}
	return &managerv1.AdoptResponse{LeaseMs: l.term().lease.Milliseconds(), LingerMs: ca.linger.Milliseconds()}, nil
}

// adopted returns the cache of a request, without grants.
func (l *leader) adopted(ctx context.Context, req *managerv1.AdoptRequest) (*cache, error) {
	id, n := req.GetCacheId(), len(req.GetGrants())
	switch {
	case id == "" || len(id) > api.MaxIDLen:
		return nil, fmt.Errorf("cache_id %.40q: want 1 to %d bytes", id, api.MaxIDLen)
	case n < 1 || n > maxRegions:
		return nil, fmt.Errorf("%d grants: want 1 to %d", n, maxRegions)
	case req.GetAs().GetConfiguration() == nil || req.GetAs().GetRegionSize() == 0:
		return nil, errors.New("as: want a configuration and a region_size")
	case req.GetPer() > maxRegions:
		return nil, fmt.Errorf("per %d: want at most %d", req.GetPer(), maxRegions)
	}
	d, err := decide(req.GetAs(), l.opts.Transport)
	if err = errors.Join(err, checkLinger(req.GetAs().GetLingerMs())); err != nil {
		return nil, err
	}
	if req.GetPer() > 0 {
		d.per = req.GetPer()
	}
	d.shrinks, d.on = false, ""
	now := l.opts.now()
	ca := &cache{
		stored: new(stored), id: id, owner: access.CallerOf(ctx).Name, requestID: id, demand: d, log: newEventLog(),
		holder: req.GetHolder(), change: req.GetChange(), linger: l.grantedLinger(req.GetAs().GetLingerMs()), created: now, moved: now,
	}
	ca.log.last, ca.log.dropped = l.self.Epoch, l.self.Epoch // watchers get the whole state first
	ca.demand.source, ca.decisions.of = ca.source(), ca
	ca.measurements = measurements{since: now}
	return ca, nil
}

// shown returns grants for a cache, as their servers show them.
func (l *leader) shown(ctx context.Context, ca *cache, all []*managerv1.Grant) ([]*grant, error) {
	grants, seen, lenders := make([]*grant, 0, len(all)), make(map[string]bool), make(map[*vm]*lender)
	for _, p := range all {
		id, t := p.GetId(), p.GetTerms()
		switch {
		case t.GetCacheId() != ca.id || t.GetGrant() != id || t.GetHolder() != ca.holder || t.GetRegionSize() != ca.demand.regionSize:
			return nil, api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("grant %.40q: its terms are not those of this holder of the cache", id))
		case grantNumber(id) == 0 || grantID(grantNumber(id)) != id || seen[id]:
			return nil, api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("grant %.40q: want g and a number, each once", id))
		case p.GetRegions() < 1 || p.GetRegions() > t.GetRegions():
			return nil, api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("grant %s: %d regions: want 1 to %d", id, p.GetRegions(), t.GetRegions()))
		}
		seen[id] = true
		v, server := l.state.registered(t.GetVmId())
		if v == nil || !controltoken.Equal(p.GetToken(), server.Token(t)) {
			return nil, fmt.Errorf("grant %s of cache %s %w: VM %.40q has not registered, or has been started again", id, ca.id, errNotShown, t.GetVmId())
		}
		g := &grant{id: id, cache: ca.id, vm: v, regions: p.GetRegions(), regionSize: t.GetRegionSize(), cores: t.GetCores(), freed: make(chan struct{})}
		if lenders[v] == nil {
			lenders[v] = &lender{VM: server, lends: make(map[string]*grant)}
		}
		lenders[v].lends[id] = g
		grants = append(grants, g)
	}
	asking, _ := errgroup.WithContext(ctx)
	asking.SetLimit(8)
	for _, v := range lenders {
		asking.Go(func() error { return l.show(v, ca) })
	}
	return grants, asking.Wait()
}

// lender is a server that lends grants to a cache that is adopted.
type lender struct {
	node.VM
	lends map[string]*grant // by id
}

// show sets how much a server lends of its grants, or returns why a cache does not have one of them.
func (l *leader) show(v *lender, ca *cache) error {
	all, err := l.grantsOf(v.VM)
	if err != nil {
		return fmt.Errorf("cache %s: what VM %s lends: %w", ca.id, v.ID, err)
	}
	for _, p := range all {
		g := v.lends[p.GetId()]
		if p.GetCacheId() != ca.id || g == nil {
			continue
		}
		if p.GetHolder() > ca.holder {
			return &api.HolderError{Cache: ca.id, Holder: p.GetHolder()}
		}
		g.lends = p.GetRegions()
	}
	for _, g := range v.lends {
		if g.lends < g.regions {
			return fmt.Errorf("grant %s of cache %s %w: VM %s lends %d regions of it, not %d", g.id, ca.id, errNotShown, v.ID, g.lends, g.regions)
		}
	}
	return nil
}

// registered returns a VM whose server has registered, and a copy of its properties; nil: there is none.
func (c *state) registered(id string) (*vm, node.VM) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.vms[id]
	if v == nil || v.ControlURL == "" || v.ending {
		return nil, node.VM{}
	}
	return v, v.VM
}

// adopt enters a cache with grants, or gives one that is known the grants that it lacks. It returns the
// number of these.
func (c *state) adopt(ca *cache, grants []*grant, t term) (more int, err error) {
	c.mu.Lock()
	defer c.end(&err)
	present := c.caches[ca.id]
	switch {
	case present != nil && !present.ready:
		return 0, noCache(ca.id)
	case present != nil:
		if err := present.checkHolder(ca.holder); err != nil {
			return 0, err
		}
		present.change, ca = max(present.change, ca.change), present
	case c.had(ca.id):
		return 0, fmt.Errorf("cache %s %w", ca.id, errEnded)
	}
	var lacking []*grant
	for _, g := range grants {
		switch known := c.grants[g.key()]; {
		case c.vms[g.vm.id] != g.vm || g.vm.ending:
			return 0, fmt.Errorf("grant %s of cache %s %w: VM %s has ended", g.id, ca.id, errNotShown, g.vm.id)
		case known == nil:
			lacking = append(lacking, g)
		case known.phase != lent || known.vm != g.vm:
			return 0, fmt.Errorf("grant %s of cache %s %w: it is taken back", g.id, ca.id, errEnded)
		}
	}
	for _, g := range lacking {
		v := g.vm
		v.held[g] = struct{}{}
		v.lent++
		v.visits++
		v.reserved += g.bytes()
		v.threads += g.cores
		// What the server lent when it registered was none of what can be granted, and what it has
		// lent since is hidden.
		v.memory, v.hidden, v.short = min(v.Memory, v.memory+g.bytes()), v.hidden-min(v.hidden, g.bytes()), 0
		delete(v.strays, stray{g.cache, g.id})
		c.touch(v)
		c.list(v)
		ca.given = max(ca.given, grantNumber(g.id))
		if g.lends > g.regions {
			c.queue(g.key())
		}
	}
	c.lend(lacking, 0)
	ca.grants, ca.ready = append(ca.grants, lacking...), true
	ca.demand.distance = farthestOf(ca.grants)
	ca.places, ca.moving = nil, nil // an older copy's may be wrong
	ca.renew(t)
	c.caches[ca.id], c.asked[ca.requestID] = ca, ca
	c.touch(ca)
	return len(lacking), nil
}
