package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/plan"
)

// reallocate serves Reallocate.
func (m *Manager) reallocate(ctx context.Context, req *managerv1.ReallocateRequest) (*managerv1.ReallocateResponse, error) {
	return untilSold(ctx, req, m.tryReallocate)
}

// tryReallocate is one try of reallocate, as tryAllocate is of allocate. The new grants are
// this call's alone until they are adopted: a concurrent Settle or Deallocate does not
// release them.
func (m *Manager) tryReallocate(ctx context.Context, req *managerv1.ReallocateRequest) (*managerv1.ReallocateResponse, error) {
	now, err := m.state.demand(req.GetCacheId())
	if err != nil {
		return nil, refuse(err, connect.CodeNotFound)
	}
	s, err := m.supply(ctx, now.cloudRegion)
	if err != nil {
		return nil, err
	}
	var configs map[int]*managerv1.Configuration
	if req.GetConfiguration() == nil {
		if configs, err = m.search.search(req.GetSlo(), now.transport, req.GetClient()); err != nil {
			return nil, err
		}
	}
	// The offers and the search may have taken long.
	if now, err = m.state.demand(req.GetCacheId()); err != nil {
		return nil, refuse(err, connect.CodeNotFound)
	}
	ca, d, more, err := m.state.reserveMore(req, configs, m.reach(req, now, configs), s, newVMID)
	if err != nil {
		return nil, refuse(err, connect.CodeInvalidArgument)
	}
	grants := more.grants
	var answer *managerv1.ReallocateResponse
	if err = m.bringUp(ctx, grants, d.transport); err == nil {
		answer, err = m.state.adopt(ca, more, req.GetChange())
	}
	if err != nil {
		m.release(ca.id, m.state.coolDown(grants), false)
		m.opts.Logger.Warn("cache not reallocated", "cache", ca.id, "regions", d.regions, "err", err)
		return nil, refuse(err, connect.CodeUnavailable)
	}
	wake(m.taken)
	m.counts.note(func(n *Metrics) { n.Reallocated++ })
	answer.Configuration, answer.Whole = d.config, more.whole
	m.opts.Logger.Info("cache reallocated", "cache", ca.id, "regions", d.regions, "grants", len(grants))
	return answer, nil
}

// reach returns the distances at which the configuration of a demand meets its SLO, for a
// request that changes neither.
func (m *Manager) reach(req *managerv1.ReallocateRequest, d demand, configs map[int]*managerv1.Configuration) reach {
	if configs != nil || req.GetConfiguration() != nil {
		return nil
	}
	d.slo, d.client = cmp.Or(req.GetSlo(), d.slo), cmp.Or(req.GetClient(), d.client)
	return m.reachFor(d)
}

// reachFor returns the distances at which a demand's configuration meets its SLO; nil if the
// present models do not contain that configuration.
func (m *Manager) reachFor(d demand) reach {
	found, err := m.search.search(d.slo, d.transport, d.client)
	if err != nil {
		return nil
	}
	return reachOf(found, d.config)
}

// demand returns a cache's demand.
func (c *state) demand(id string) (demand, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca, err := c.known(id)
	if err != nil {
		return demand{}, err
	}
	return ca.demand, nil
}

// addition are the grants that a Reallocate gives a cache.
type addition struct {
	grants   []*grant
	decision *managerv1.Decision // nil: nothing had to be chosen
	client   *managerv1.Client   // of the request; nil: not known
	whole    bool                // they replace all the cache's grants
}

// reserveMore chooses and reserves the memory of a request, as reserve does. The grants are
// the caller's until adopt; byVM and free undo reserveMore.
func (c *state) reserveMore(req *managerv1.ReallocateRequest, configs map[int]*managerv1.Configuration, within reach, s supply, newID func() string) (*cache, demand, addition, error) {
	for range replanTries {
		w, err := c.want(req, configs, s)
		if err != nil {
			return nil, w.d, addition{}, err
		}
		p, err := w.place(req, configs, within)
		whole := false
		if instead, better := w.placeWhole(req, p, err, within); better {
			p, whole, w.d.regions, err = instead, true, req.GetWhole(), nil
		}
		if err != nil {
			return nil, w.d, addition{}, err
		}
		more, err := c.reserveWanted(req, w, p, newID)
		if err != nil || more.grants != nil {
			w.d.config, more.whole = p.config, whole
			return w.ca, w.d, more, err
		}
	}
	return nil, demand{}, addition{}, errTaken
}

// want is a request for memory, with the VMs and offers from which it can choose.
type want struct {
	ca      *cache
	changes uint64 // of the cache when want was made
	d       demand
	avoid   map[string]bool
	present []candidate
	pool    []candidate
	s       supply

	settled bool        // the cache may move as a whole; then the fields below are set
	price   plan.Price  // of the cache's grants
	apart   []candidate // pool without the cache's VMs
}

// want returns the want of a request.
func (c *state) want(req *managerv1.ReallocateRequest, configs map[int]*managerv1.Configuration, s supply) (w want, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca, err := c.known(req.GetCacheId())
	if err == nil {
		err = ca.checkCurrent(req.GetChange())
	}
	if err != nil {
		return w, err
	}
	d, err := decideMore(ca.demand, req, configs)
	if err != nil {
		return w, err
	}
	avoid := make(map[string]bool)
	for _, id := range req.GetAvoidVms() {
		avoid[id] = true
	}
	for _, s := range ca.all() {
		// A cache must not have grants on two incarnations of a VM, as events name VMs by
		// id.
		if s.vm.failed != "" {
			avoid[s.vm.id] = true
		}
	}
	var present []candidate
	if req.GetPreferPresent() {
		present = ca.present(avoid)
	}
	if whole := req.GetWhole(); whole > maxRegions || whole > 0 && whole < d.regions {
		return w, fmt.Errorf("%d regions in all, %d of them new: want %d to %d", whole, d.regions, d.regions, maxRegions)
	}
	w = want{
		ca: ca, changes: ca.changes, d: d, avoid: avoid, present: present,
		pool: c.pool(avoid, s.now), s: c.withWarm(s, d.transport, true),
	}
	if req.GetWhole() > 0 && ca.settled() {
		has := maps.Clone(avoid)
		for _, s := range ca.grants {
			has[s.vm.id] = true
		}
		w.settled, w.price, w.apart = true, total(ca.grants), c.pool(has, s.now)
	}
	return w, nil
}

// placeWhole chooses VMs for all of a growing cache, instead of p for its growth only (R74).
// It returns false unless that saves enough, or p failed with err for lack of memory.
func (w want) placeWhole(req *managerv1.ReallocateRequest, p placement, err error, within reach) (placement, bool) {
	var short *api.CapacityError
	if !w.settled || err != nil && !errors.As(err, &short) {
		return placement{}, false
	}
	one := w
	one.d.regions, one.present, one.pool = req.GetWhole(), nil, w.apart
	instead, none := one.place(req, nil, within)
	if none != nil {
		return placement{}, false
	}
	stay, move := w.price+w.priceOf(p), one.priceOf(instead)
	reason := fmt.Sprintf("moved as a whole, the cache costs %v; with more VMs beside its own, %v", move, stay)
	switch {
	case err != nil:
		reason = "there is too little memory beside the cache's VMs"
	case move >= stay || float64(move) > float64(stay)*(1-w.s.economy.MinSaving):
		return placement{}, false
	}
	instead.decision = aboutMove(instead.decision, reason)
	return instead, true
}

// priceOf returns what a placement adds to the cache's price. Launched VMs that the cache has
// add nothing.
func (w want) priceOf(p placement) plan.Price {
	sum := plan.Price(p.decision.GetPriceMicros())
	for _, part := range p.parts[:p.filled] {
		if part.vm.launched {
			continue
		}
		i := slices.IndexFunc(w.present, func(c candidate) bool { return c.vm == part.vm })
		c := w.present[i]
		sum += plan.Server{Memory: c.memory, Price: c.price}.Share(int(part.regions), w.d.regionSize)
	}
	return sum
}

// place chooses VMs for a want.
func (w want) place(req *managerv1.ReallocateRequest, configs map[int]*managerv1.Configuration, within reach) (placement, error) {
	p, err := place(within.bound(w.d), w.present, slices.Clone(w.pool), w.s)
	var short *api.CapacityError
	if errors.As(err, &short) && within != nil && len(w.avoid) > 0 && !req.GetVoluntary() {
		// The cache has to leave its VMs, even for VMs at which the SLO is not met.
		p, err = place(w.d, w.present, slices.Clone(w.pool), w.s)
	}
	if err == nil && configs == nil && req.GetConfiguration() == nil && bounded(w.d.slo) {
		within.note(p.decision, w.d.distance)
	}
	return p, err
}

// reserveWanted reserves the chosen memory. It returns no grants if the cache has changed, or
// the memory is no longer free.
func (c *state) reserveWanted(req *managerv1.ReallocateRequest, w want, p placement, newID func() string) (_ addition, err error) {
	c.mu.Lock()
	defer c.end(&err)
	ca := w.ca
	switch {
	case c.caches[ca.id] != ca:
		return addition{}, noCache(ca.id)
	case ca.changes != w.changes || !c.stillFree(p, w.d):
		return addition{}, nil
	}
	if req.GetVoluntary() {
		if err := ca.checkWorth(req.GetAvoidVms(), p, w.s.economy); err != nil {
			return addition{}, err
		}
	}
	if has := len(ca.all()); has+len(p.parts) > maxGrantsPerCache {
		return addition{}, &api.CapacityError{
			What: "cache " + ca.id + ": number of VMs while it moves", Asked: uint64(has + len(p.parts)), Available: maxGrantsPerCache,
		}
	}
	c.warmUp(p.parts, w.s.region, w.d.transport)
	d := w.d
	d.config = p.config
	return addition{grants: c.lend(ca, d, p.parts, newID), decision: p.decision, client: req.GetClient()}, nil
}

// present lists a cache's VMs, the last one first, as a cache grows at its end (R72). Called
// under mu.
func (ca *cache) present(avoid map[string]bool) []candidate {
	var present []candidate
	seen := make(map[*vm]bool)
	for i := len(ca.grants) - 1; i >= 0; i-- {
		if v := ca.grants[i].vm; !seen[v] && !avoid[v.id] && v.usable() == nil {
			seen[v] = true
			present = append(present, v.candidate())
		}
	}
	return present
}

// checkCurrent reports a Reallocate that its client has given up, or that was answered before.
// Called under mu.
func (ca *cache) checkCurrent(change uint64) error {
	if change == 0 {
		return nil
	}
	last := ca.change
	for _, s := range ca.pending {
		last = max(last, s.change)
	}
	if change <= last {
		return fmt.Errorf("cache %s: change %d %w: the last one is %d", ca.id, change, errStale, last)
	}
	return nil
}

// adopt makes grants pending ones of a cache, unless the cache was deallocated, its client has
// settled meanwhile, or one of their VMs has become unusable.
func (c *state) adopt(ca *cache, more addition, change uint64) (_ *managerv1.ReallocateResponse, err error) {
	c.mu.Lock()
	defer c.end(&err)
	if c.caches[ca.id] != ca {
		return nil, noCache(ca.id)
	}
	if err := errors.Join(ca.checkCurrent(change), usable(more.grants)); err != nil {
		return nil, err
	}
	for _, s := range more.grants {
		s.change = change
	}
	ca.pending = append(ca.pending, more.grants...)
	ca.decide("reallocate", more.decision)
	ca.demand.client = cmp.Or(more.client, ca.demand.client)
	c.touchCache(ca)
	return &managerv1.ReallocateResponse{Grants: c.withTokens(ca, protos(more.grants, true), more.grants)}, nil
}
