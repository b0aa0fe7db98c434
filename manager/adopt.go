package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
)

// Adopt enters a cache that the catalog does not know: it is empty, an older copy or another one. The
// client says what the cache is. It has got each grant from a manager, as the token shows, which is made
// with the server's secret; and the server shows that it lends the grant, and to no later holder.
//
// Managers with other catalogs have given the cache grants that nobody names here. So that no grant has
// the number of another one, the next ones have numbers above those that any leader before this one gives.

// errNotShown is the error of a grant whose server does not show it, or not yet.
var errNotShown = errors.New("is not shown by its server")

// maxToldLease bounds the lease that a client says it was told.
const maxToldLease = time.Hour

// adoption is a cache that is adopted, and what its servers show.
type adoption struct {
	cache    *cache // as its client knows it, without grants
	caller   access.Caller
	grants   []*grant
	lease    time.Duration // that the client was told
	answered uint64        // change of the client that was answered last
	number   uint64        // that no grant has yet
}

// adopt serves Adopt.
func (l *leader) adopt(ctx context.Context, req *managerv1.AdoptRequest) (*managerv1.AdoptResponse, error) {
	a, err := l.adoption(ctx, req)
	if err != nil {
		return nil, refuse(err, connect.CodeInvalidArgument)
	}
	if err := l.shown(ctx, a, req.GetGrants()); err != nil {
		return nil, refuse(err, connect.CodeUnavailable)
	}
	more, linger, err := l.state.adopt(ctx, a, l.term())
	if err != nil {
		return nil, refuse(err, connect.CodeUnavailable)
	}
	if more > 0 {
		l.opts.Logger.Warn("cache adopted: the catalog did not know these grants", "cache", a.cache.id, "grants", more)
	}
	return &managerv1.AdoptResponse{LeaseMs: l.term().lease.Milliseconds(), LingerMs: linger.Milliseconds()}, nil
}

// adoption returns the cache of a request.
func (l *leader) adoption(ctx context.Context, req *managerv1.AdoptRequest) (*adoption, error) {
	id, n, as := req.GetCacheId(), len(req.GetGrants()), req.GetAs()
	switch {
	case id == "" || len(id) > api.MaxIDLen:
		return nil, fmt.Errorf("cache_id %.40q: want 1 to %d bytes", id, api.MaxIDLen)
	case n < 1 || n > maxGrantsPerCache:
		return nil, fmt.Errorf("%d grants: want 1 to %d", n, maxGrantsPerCache)
	case as.GetConfiguration() == nil || as.GetRegionSize() == 0:
		return nil, errors.New("as: want a configuration and a region_size")
	case req.GetPer() > maxRegions:
		return nil, fmt.Errorf("per %d: want at most %d", req.GetPer(), maxRegions)
	case req.GetChange() == 0:
		return nil, errNoChange
	case req.GetChange() > math.MaxInt64 || req.GetHolder() > math.MaxInt64:
		return nil, fmt.Errorf("change %d, holder %d: want at most %d", req.GetChange(), req.GetHolder(), int64(math.MaxInt64))
	case req.GetLeaseMs() < 0:
		return nil, fmt.Errorf("lease_ms %d: want 0 or more", req.GetLeaseMs())
	}
	d, err := decide(as, l.opts.Transport)
	if err = errors.Join(err, checkLinger(as.GetLingerMs())); err != nil {
		return nil, err
	}
	d.shrinks, d.on, d.per = false, "", cmp.Or(req.GetPer(), d.per)
	d.cloudRegion = cmp.Or(d.cloudRegion, l.cloudRegion())
	caller, now := access.CallerOf(ctx), l.opts.now()
	ca := &cache{
		stored: new(stored), id: id, owner: caller.Name, requestID: id, demand: d, log: newEventLog(),
		holder: req.GetHolder(), change: req.GetChange(), linger: l.grantedLinger(as.GetLingerMs()), created: now, moved: now,
	}
	ca.log.last = l.self.Epoch // above that of any event of another leader: watchers get the whole state first
	ca.demand.source, ca.decisions.of = ca.source(), ca
	ca.measurements = measurements{since: now}
	told := time.Duration(min(req.GetLeaseMs(), maxToldLease.Milliseconds())) * time.Millisecond
	// An epoch is in microseconds. No leader gives a cache a grant each millisecond, and numbers have 13 digits.
	return &adoption{cache: ca, caller: caller, lease: told, answered: req.GetAnswered(), number: l.self.Epoch >> 10}, nil
}

// shown sets the grants of an adoption, as their servers show them.
func (l *leader) shown(ctx context.Context, a *adoption, all []*managerv1.Grant) error {
	ca, seen, lenders := a.cache, make(map[string]bool), make(map[*vm]*lender)
	for _, p := range all {
		id, number, t := p.GetId(), grantNumber(p.GetId()), p.GetTerms()
		switch {
		case t.GetCacheId() != ca.id || t.GetGrant() != id || t.GetHolder() != ca.holder || t.GetRegionSize() != ca.demand.regionSize:
			return api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("grant %.40q: its terms are not those of this holder of the cache", id))
		case number == 0 || number > math.MaxInt64 || grantID(number) != id || seen[id]:
			return api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("grant %.40q: want g and a number, each once", id))
		case p.GetRegions() < 1 || p.GetRegions() > min(t.GetRegions(), maxRegions):
			return api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("grant %s: %d regions: want 1 to %d", id, p.GetRegions(), min(t.GetRegions(), maxRegions)))
		}
		seen[id] = true
		v, server := l.state.registered(t.GetVmId())
		if v == nil || !controltoken.Equal(p.GetToken(), server.Token(t)) {
			return fmt.Errorf("grant %s of cache %s %w: VM %.40q has not registered, or has been started again", id, ca.id, errNotShown, t.GetVmId())
		}
		g := &grant{id: id, cache: ca.id, vm: v, regions: p.GetRegions(), regionSize: t.GetRegionSize(), cores: min(t.GetCores(), server.Cores), freed: make(chan struct{})}
		if lenders[v] == nil {
			lenders[v] = &lender{VM: server, lends: make(map[string]*grant)}
		}
		lenders[v].lends[id] = g
		a.grants = append(a.grants, g)
	}
	asking, within := errgroup.WithContext(ctx)
	asking.SetLimit(8)
	for _, v := range lenders {
		asking.Go(func() error { return l.show(within, v, ca) })
	}
	return asking.Wait()
}

// lender is a server that lends grants to a cache that is adopted.
type lender struct {
	node.VM
	lends map[string]*grant // by id
}

// show sets how much a server lends of its grants, or returns why a cache does not have one of them.
func (l *leader) show(ctx context.Context, v *lender, ca *cache) error {
	all, err := l.grantsOf(ctx, v.VM)
	if err != nil { // whatever it is: the server may obey the manager before this one for a while
		return api.Refuse(connect.CodeUnavailable, fmt.Errorf("cache %s: what VM %s lends: %w", ca.id, v.ID, err))
	}
	for _, p := range all {
		if p.GetCacheId() != ca.id {
			continue
		}
		if p.GetHolder() > ca.holder {
			return &api.HolderError{Cache: ca.id, Holder: p.GetHolder()}
		}
		if g := v.lends[p.GetId()]; g != nil {
			g.lends = min(p.GetRegions(), maxRegions)
		}
	}
	for _, g := range v.lends {
		if g.lends < g.regions || g.bytes() > v.Memory {
			return fmt.Errorf("grant %s of cache %s %w: VM %s lends %d regions of it, not %d", g.id, ca.id, errNotShown, v.ID, g.lends, g.regions)
		}
	}
	return nil
}

// registered returns a VM whose server has called this leader, and a copy of its properties; nil: there is
// none.
func (c *state) registered(id string) (*vm, node.VM) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.vms[id]
	if v == nil || v.ControlURL == "" || v.ending || !v.called {
		return nil, node.VM{}
	}
	return v, v.VM
}

// adopt enters a cache with grants, or gives one that is known the grants that it lacks. It returns the
// number of these, and for how long the cache lingers. The context is that of the call: when it has ended,
// the client may have made other calls.
func (c *state) adopt(ctx context.Context, a *adoption, t term) (more int, linger time.Duration, err error) {
	c.mu.Lock()
	defer c.end(&err)
	ca := a.cache
	present := c.caches[ca.id]
	switch {
	case ctx.Err() != nil:
		return 0, 0, context.Cause(ctx)
	case present == nil && c.had(ca.id):
		return 0, 0, fmt.Errorf("cache %s %w", ca.id, errEnded)
	case present != nil:
		if err := present.takes(a); err != nil {
			return 0, 0, err
		}
	}
	lacking, err := c.lacking(a, present != nil)
	if err != nil {
		return 0, 0, err
	}
	if present != nil && len(present.all())+len(lacking) > maxGrantsPerCache {
		return 0, 0, api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("cache %s has %d grants, and lacks %d: want at most %d", ca.id, len(present.all()), len(lacking), maxGrantsPerCache))
	}
	if present != nil {
		if len(lacking) == 0 && present.holder == ca.holder && present.lastChange() >= a.answered { // it is known as it is
			c.leaseAdopted(present, a, t)
			return 0, present.linger, nil
		}
		c.renewState(present, a, t)
		ca = present
	}
	for _, g := range lacking {
		c.adoptGrant(g)
		ca.given = max(ca.given, grantNumber(g.id))
	}
	c.lend(lacking, 0)
	ca.grants, ca.ready = append(ca.grants, lacking...), true
	ca.given, ca.adopted = max(ca.given, a.number), max(ca.adopted, a.number)
	ca.demand.distance = farthestOf(ca.grants)
	// Watchers get the whole state: what has happened to these VMs was told to nobody.
	ca.log.last++
	ca.log.dropped = ca.log.last
	c.caches[ca.id], c.asked[ca.requestID] = ca, ca
	c.leaseAdopted(ca, a, t)
	return len(lacking), ca.linger, nil
}

// leaseAdopted begins the lease of an adopted cache. Called under mu.
func (c *state) leaseAdopted(ca *cache, a *adoption, t term) {
	ca.lingers = time.Time{}
	ca.renew(t)
	ca.lease = max(ca.lease, a.lease)
	ca.extend(t)
	c.touch(ca)
}

// renewState makes a cache that is known in an older state what its client says. Its places are not
// known. If another client holds it, what the one that is known had begun is given up, as by Attach.
// Called under mu.
func (c *state) renewState(ca *cache, a *adoption, t term) {
	if now := a.cache; now.holder > ca.holder {
		var given, others []*grant
		for _, g := range ca.pending {
			if slices.ContainsFunc(a.grants, func(named *grant) bool { return named.id == g.id }) {
				given = append(given, g)
			} else {
				others = append(others, g)
			}
		}
		ca.grants, ca.pending = append(ca.grants, given...), others
		c.succeed(ca, now.holder, "", t)
	} else {
		c.wake(&ca.log)
	}
	ca.change, ca.places, ca.moving = a.cache.change, nil, nil
}

// takes returns why a cache that is known is not as its client says. Called under mu.
func (ca *cache) takes(a *adoption) error {
	switch {
	case !ca.ready:
		return noCache(ca.id)
	case a.cache.holder < ca.holder:
		return &api.HolderError{Cache: ca.id, Holder: ca.holder}
	case a.cache.holder == ca.holder && a.cache.change < ca.change:
		return api.Refuse(connect.CodeUnavailable, fmt.Errorf("cache %s: change %d %w: the last one is %d", ca.id, a.cache.change, errStale, ca.change))
	case a.cache.demand.regionSize != ca.demand.regionSize:
		return api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("cache %s has regions of %d bytes, not %d", ca.id, ca.demand.regionSize, a.cache.demand.regionSize))
	}
	return a.caller.CheckOwner(ca.owner, ca.id)
}

// lacking returns the grants of an adoption that the catalog does not know. Grants of a known cache that
// are taken back are not adopted. Called under mu.
func (c *state) lacking(a *adoption, known bool) (all []*grant, err error) {
	for _, g := range a.grants {
		switch has := c.grants[g.key()]; {
		case c.vms[g.vm.id] != g.vm || g.vm.ending:
			return nil, fmt.Errorf("grant %s of cache %s %w: VM %s has ended", g.id, g.cache, errNotShown, g.vm.id)
		case has == nil:
			all = append(all, g)
		case has.vm != g.vm || !known:
			return nil, fmt.Errorf("grant %s of cache %s %w: it is taken back, or another one", g.id, g.cache, errEnded)
		}
	}
	return all, nil
}

// adoptGrant counts a grant at its VM. Called under mu.
func (c *state) adoptGrant(g *grant) {
	v := g.vm
	v.hold(g)
	v.visits++
	// What the server has lent since it registered is hidden. What it lent before is none of what can be
	// granted.
	since := min(v.hidden, g.bytes())
	v.hidden, v.memory = v.hidden-since, min(v.Memory, v.memory+g.bytes()-since)
	if v.warm {
		c.setWarm(v, false)
	}
	delete(v.strays, stray{g.cache, g.id})
	c.touch(v)
	c.list(v)
	if g.lends > g.regions {
		c.queue(g.key())
	}
}
