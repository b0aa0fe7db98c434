package manager

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// reallocate serves Reallocate.
func (m *Manager) reallocate(ctx context.Context, req *managerv1.ReallocateRequest) (*managerv1.ReallocateResponse, error) {
	return untilSold(func() (*managerv1.ReallocateResponse, error) { return m.tryReallocate(ctx, req) })
}

// tryReallocate is one try of reallocate: as tryAllocate does, for a cache that there is.
// Nobody but this call knows the new shares until they are adopted, so a Settle
// or Deallocate that comes meanwhile leaves them to it.
func (m *Manager) tryReallocate(ctx context.Context, req *managerv1.ReallocateRequest) (*managerv1.ReallocateResponse, error) {
	s, err := m.supplyOf(ctx, req.GetCacheId())
	if err != nil {
		return nil, err
	}
	configs, err := m.searchMore(req)
	if err != nil {
		return nil, err
	}
	within, err := m.reach(req, configs)
	if err != nil {
		return nil, err
	}
	ca, d, more, err := m.catalog.reserveMore(req, configs, within, s, newVMID)
	if err != nil {
		return nil, refuseCapacity(err, connect.CodeInvalidArgument)
	}
	shares := more.shares
	var answer *managerv1.ReallocateResponse
	if err = m.bringUp(ctx, shares, d.transport); err == nil {
		answer, err = m.catalog.adopt(ca, more)
	}
	if err != nil {
		m.release(ca.id, m.catalog.coolDown(shares), false)
		m.opts.Logger.Warn("cache not reallocated", "cache", ca.id, "regions", d.regions, "err", err)
		return nil, refuseCapacity(err, connect.CodeUnavailable)
	}
	wake(m.taken)
	m.counts.note(func(n *Metrics) { n.Reallocated++ })
	answer.Configuration = d.config
	m.opts.Logger.Info("cache reallocated", "cache", ca.id, "regions", d.regions, "shares", len(shares))
	return answer, nil
}

// searchMore finds configurations for the SLO of a request that has one.
func (m *Manager) searchMore(req *managerv1.ReallocateRequest) (map[int]*managerv1.Configuration, error) {
	if req.GetConfiguration() != nil || !bounded(req.GetSlo()) {
		return nil, nil
	}
	transport, err := m.catalog.transport(req.GetCacheId())
	if err != nil {
		return nil, refuseCapacity(err, connect.CodeNotFound)
	}
	return m.search.search(req.GetSlo(), transport, req.GetClient())
}

// reach finds how far away VMs may be for a request that leaves a cache with SLO and
// configuration as they are.
func (m *Manager) reach(req *managerv1.ReallocateRequest, configs map[int]*managerv1.Configuration) (reach, error) {
	if configs != nil || req.GetConfiguration() != nil {
		return nil, nil
	}
	d, err := m.catalog.demand(req.GetCacheId())
	if err != nil {
		return nil, refuseCapacity(err, connect.CodeNotFound)
	}
	slo := d.slo
	if req.GetSlo() != nil {
		slo = req.GetSlo()
	}
	found, err := m.search.search(slo, d.transport, req.GetClient())
	if err != nil {
		return nil, nil //nolint:nilerr // the cache has its configuration, whatever models there are now
	}
	return reachOf(found, d.config), nil
}

// demand is what a cache is.
func (c *catalog) demand(id string) (demand, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca, err := c.known(id)
	if err != nil {
		return demand{}, err
	}
	return ca.demand, nil
}

// transport is what a cache's memory is reached over.
func (c *catalog) transport(id string) (string, error) {
	d, err := c.demand(id)
	return d.transport, err
}

// addition is what a Reallocate gives a cache.
type addition struct {
	shares   []*share
	decision *managerv1.Decision // nil: nothing had to be chosen
}

// reserveMore places and reserves what a request asks for. The shares are nobody
// else's until adopt; part and free undo it.
func (c *catalog) reserveMore(req *managerv1.ReallocateRequest, configs map[int]*managerv1.Configuration, within reach, s supply, newID func() string) (_ *cache, _ demand, _ addition, err error) {
	c.mu.Lock()
	defer c.end(&err)
	ca, err := c.known(req.GetCacheId())
	if err != nil {
		return nil, demand{}, addition{}, err
	}
	d, err := decideMore(ca.demand, req, configs)
	if err != nil {
		return nil, d, addition{}, err
	}
	avoid := make(map[string]bool)
	for _, id := range req.GetAvoidVms() {
		avoid[id] = true
	}
	for _, s := range ca.all() {
		// Of two incarnations of a VM, the cache could not tell which one an event
		// is about.
		if s.vm.failed != "" {
			avoid[s.vm.id] = true
		}
	}
	var present []candidate
	if req.GetPreferPresent() {
		present = ca.present(avoid)
	}
	s = c.withWarm(s, d.transport, true)
	p, err := place(within.bound(d), present, c.pool(avoid, s.now), s)
	var short *CapacityError
	if errors.As(err, &short) && within != nil && len(avoid) > 0 && !req.GetVoluntary() {
		// What the cache leaves goes away, whatever becomes of the SLO.
		p, err = place(d, present, c.pool(avoid, s.now), s)
	}
	if err != nil {
		return nil, d, addition{}, err
	}
	if configs == nil && req.GetConfiguration() == nil && bounded(d.slo) {
		within.note(p.decision, d.distance)
	}
	if req.GetVoluntary() {
		if err := ca.worth(req.GetAvoidVms(), p, s.economy); err != nil {
			return nil, d, addition{}, err
		}
	}
	if has := len(ca.all()); has+len(p.parts) > maxSharesPerCache {
		return nil, d, addition{}, &CapacityError{
			What: "cache " + ca.id + ": number of VMs while it moves", Asked: uint64(has + len(p.parts)), Available: maxSharesPerCache,
		}
	}
	c.warmUp(p.parts, s.region, d.transport)
	d.config = p.config
	return ca, d, addition{c.grant(ca, d, p.parts, newID), p.decision}, nil
}

// present lists the VMs that a cache uses, from the last one on, since it is at
// its end that a cache grows (R72). Called under mu.
func (ca *cache) present(avoid map[string]bool) []candidate {
	var present []candidate
	seen := make(map[*vm]bool)
	for i := len(ca.shares) - 1; i >= 0; i-- {
		if v := ca.shares[i].vm; !seen[v] && !avoid[v.id] && v.usable() == nil {
			seen[v] = true
			present = append(present, v.candidate())
		}
	}
	return present
}

// adopt makes shares pending ones of a cache, unless it is gone, or one of their
// VMs has failed or is leaving meanwhile.
func (c *catalog) adopt(ca *cache, more addition) (_ *managerv1.ReallocateResponse, err error) {
	c.mu.Lock()
	defer c.end(&err)
	if c.caches[ca.id] != ca {
		return nil, noCache(ca.id)
	}
	if err := usable(more.shares); err != nil {
		return nil, err
	}
	ca.pending = append(ca.pending, more.shares...)
	ca.decide("reallocate", more.decision)
	c.touchCache(ca)
	return &managerv1.ReallocateResponse{Shares: ca.withTokens(protos(more.shares, true), more.shares)}, nil
}
