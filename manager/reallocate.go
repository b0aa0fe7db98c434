package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/plan"
)

// reallocate serves Reallocate.
func (l *leader) reallocate(ctx context.Context, req *managerv1.ReallocateRequest) (*managerv1.ReallocateResponse, error) {
	return untilSold(ctx, func() (*managerv1.ReallocateResponse, error) { return l.tryReallocate(ctx, req) })
}

// tryReallocate is one try of reallocate, as tryAllocate is of allocate. The new grants are
// this request's alone until they are granted: a concurrent Settle does not release them.
func (l *leader) tryReallocate(ctx context.Context, req *managerv1.ReallocateRequest) (*managerv1.ReallocateResponse, error) {
	if req.GetChange() == 0 {
		return nil, api.Refuse(connect.CodeInvalidArgument, errNoChange)
	}
	if ms := req.GetWaitMs(); ms < 0 || ms > maxWait.Milliseconds() {
		return nil, api.Refuse(connect.CodeInvalidArgument, fmt.Errorf("wait_ms %d: want 0 to %d", ms, maxWait.Milliseconds()))
	}
	ca, r, err := l.state.attachChange(req.GetCacheId(), req.GetHolder(), req.GetChange())
	if err == nil && r == nil {
		ca, r, err = l.reserveFor(ctx, req)
	}
	if err != nil {
		l.abandon(r, err)
		return nil, refuse(err, connect.CodeInvalidArgument)
	}
	pending, err := l.await(ctx, r, time.Duration(req.GetWaitMs())*time.Millisecond)
	if err != nil {
		l.opts.Logger.Warn("cache not reallocated", "cache", ca.id, "regions", req.GetRegions(), "err", err)
		return nil, refuse(err, connect.CodeUnavailable)
	}
	if len(pending) > 0 {
		return &managerv1.ReallocateResponse{Pending: pending}, nil
	}
	answer, err := l.reallocated(ca, req.GetHolder(), req.GetChange())
	if err != nil {
		return nil, refuse(err, connect.CodeUnavailable)
	}
	end := api.ToMillis(time.Now().Add(sourceLife))
	for _, s := range answer.GetSources() {
		s.NotAfterUnixMs = end
		l.signs.Sign(s)
	}
	wake(l.taken)
	l.counts.note(func(n *Metrics) { n.Reallocated++ })
	l.opts.Logger.Info("cache reallocated", "cache", ca.id, "regions", req.GetRegions(), "grants", len(answer.GetGrants()))
	return answer, nil
}

// errNoChange is the error of a Reallocate or a Settle without a number.
var errNoChange = errors.New("change 0: want the number of the client's change of this cache, from 1 on")

// attachChange returns the request of an earlier Reallocate of the same number; nil: there is
// none. The error is errUnknownCache, or errStale for an outdated number.
func (c *state) attachChange(id string, holder, number uint64) (*cache, *request, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca, err := c.held(id, holder)
	if err != nil {
		return nil, nil, err
	}
	var r *request
	switch {
	case ca.request != nil && ca.request.change == number:
		r = ca.request
	case number > ca.change && ca.last.GetNumber() == number:
		r = answered()
	default:
		return ca, nil, ca.checkCurrent(number)
	}
	r.waiting++
	return ca, r, nil
}

// checkCurrent reports a Reallocate that its client has given up. Called under mu.
func (ca *cache) checkCurrent(change uint64) error {
	if last := max(ca.change, ca.last.GetNumber()); change <= last {
		return fmt.Errorf("cache %s: change %d %w: the last one is %d", ca.id, change, errStale, last)
	}
	return nil
}

// reserveFor chooses and reserves the memory of a Reallocate.
func (l *leader) reserveFor(ctx context.Context, req *managerv1.ReallocateRequest) (*cache, *request, error) {
	now, err := l.state.demand(req.GetCacheId())
	if err != nil {
		return nil, nil, err
	}
	now.client = cmp.Or(req.GetClient(), now.client)
	s, err := l.supply(ctx, now.from())
	if err != nil {
		return nil, nil, err
	}
	var configs map[int]*managerv1.Configuration
	if req.GetConfiguration() == nil {
		if configs, err = l.search.search(req.GetSlo(), now.transport, req.GetClient()); err != nil {
			return nil, nil, err
		}
	}
	// The offers and the search may have taken long.
	if now, err = l.state.demand(req.GetCacheId()); err != nil {
		return nil, nil, err
	}
	within := l.reach(req, now, configs)
	for ctx.Err() == nil {
		w, err := l.state.want(req, configs, s)
		if err != nil {
			return nil, nil, err
		}
		p, err := w.place(l.state, req, configs, within)
		whole := false
		if instead, better := w.placeWhole(l.state, req, p, err, within); better {
			p, whole, w.d.regions, err = instead, true, req.GetWhole(), nil
		}
		if err != nil {
			return nil, nil, err
		}
		if r, err := l.state.reserveMore(req, w, p, whole, within, l.term()); r != nil || err != nil {
			return w.ca, r, err
		}
	}
	return nil, nil, context.Cause(ctx)
}

// reallocated returns the answer of a Reallocate that was granted, when all of it is written.
func (l *leader) reallocated(ca *cache, holder, number uint64) (*managerv1.ReallocateResponse, error) {
	if err := l.state.written(); err != nil {
		return nil, err
	}
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	if ca.ended {
		return nil, noCache(ca.id)
	}
	var grants []*grant
	sources := slices.Clone(ca.grants)
	for _, g := range ca.pending {
		if g.change == number {
			grants = append(grants, g)
		} else {
			sources = append(sources, g)
		}
	}
	if len(grants) == 0 || ca.last.GetNumber() != number {
		return nil, ca.checkCurrent(number)
	}
	all, err := l.withTokens(ca, holder, protos(grants, true), grants)
	if err != nil {
		return nil, err
	}
	return &managerv1.ReallocateResponse{
		Grants: all, Configuration: ca.last.GetConfiguration(), Whole: ca.last.GetWhole(),
		Sources: pullSources(sources),
	}, nil
}

// sourceLife is the time within which a cache's regions leave the VMs on which they are, by the clocks
// of machines. It is long beside what a move takes.
const sourceLife = 24 * time.Hour

// pullSources returns the servers of grants, not signed yet. Called under state.mu.
func pullSources(grants []*grant) (all []*managerv1.PullSource) {
	seen := make(map[*vm]bool)
	for _, g := range grants {
		if !seen[g.vm] {
			seen[g.vm] = true
			all = append(all, &managerv1.PullSource{Transport: g.vm.Transport, FabricAddr: g.vm.FabricAddr})
		}
	}
	return all
}

// reach returns the distances at which the configuration of a demand meets its SLO, for a
// request that changes neither.
func (l *leader) reach(req *managerv1.ReallocateRequest, d demand, configs map[int]*managerv1.Configuration) reach {
	if configs != nil || req.GetConfiguration() != nil {
		return nil
	}
	d.slo, d.client = cmp.Or(req.GetSlo(), d.slo), cmp.Or(req.GetClient(), d.client)
	return l.reachFor(d)
}

// reachFor returns the distances at which a demand's configuration meets its SLO; nil if the
// present models do not contain that configuration.
func (l *leader) reachFor(d demand) reach {
	found, err := l.search.search(d.slo, d.transport, d.client)
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

// want is a request for memory, with the VMs and offers from which it can choose.
type want struct {
	ca      *cache
	changes uint64 // of the cache when want was made
	d       demand
	avoid   map[string]bool
	without map[string]bool // avoid, and other VMs that are not to be used
	leaves  bool            // the cache leaves VMs, or has lost some
	present []*vm
	servers map[*vm]plan.Server // what those of the pool cost
	s       supply

	settled bool            // the cache may move as a whole; then the fields below are set
	price   plan.Price      // of the cache's grants
	has     map[string]bool // avoid and the cache's VMs
}

// want returns the want of a request.
func (c *state) want(req *managerv1.ReallocateRequest, configs map[int]*managerv1.Configuration, s supply) (w want, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca, err := c.heldAs(req.GetCacheId(), req.GetHolder(), req.GetAnswered())
	if err == nil {
		err = errors.Join(ca.checkCurrent(req.GetChange()), checkRuns(req.GetMoves()))
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
	for _, lost := range req.GetLostVms() {
		if v := c.vms[lost.GetVmId()]; v != nil && (lost.GetStart() == 0 || lost.GetStart() == v.Start) {
			avoid[v.id] = true
		}
	}
	var present []*vm
	if req.GetPreferPresent() {
		present = ca.present(avoid)
	}
	if whole := req.GetWhole(); whole > maxRegions || whole > 0 && whole < d.regions {
		return w, fmt.Errorf("%d regions in all, %d of them new: want %d to %d", whole, d.regions, d.regions, maxRegions)
	}
	w = want{
		ca: ca, changes: ca.changes, d: d, avoid: avoid, without: avoid, present: present, s: c.withWarm(s, d.transport, true),
		leaves: len(avoid)+len(req.GetLostVms()) > 0 || slices.ContainsFunc(ca.all(), func(g *grant) bool { return g.vm.failed != "" }),
	}
	w.servers = make(map[*vm]plan.Server, len(present))
	for _, v := range present {
		w.servers[v] = plan.Server{Memory: max(v.Memory, v.memory), Price: v.Price}
	}
	if req.GetWhole() > 0 && ca.settled() {
		has := maps.Clone(avoid)
		for _, s := range ca.grants {
			has[s.vm.id] = true
		}
		w.settled, w.price, w.has = true, total(ca.grants), has
	}
	return w, nil
}

// placeWhole chooses VMs for all of a growing cache, instead of p for its growth only (R74).
// It returns false unless that saves enough, or p failed with err for lack of memory.
func (w want) placeWhole(c *state, req *managerv1.ReallocateRequest, p placement, err error, within reach) (placement, bool) {
	var short *api.CapacityError
	if !w.settled || err != nil && !errors.As(err, &short) {
		return placement{}, false
	}
	one := w
	one.d.regions, one.present, one.without = req.GetWhole(), nil, w.has
	instead, none := one.place(c, req, nil, within)
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
		sum += w.servers[part.vm].Share(int(part.regions), w.d.regionSize)
	}
	return sum
}

// place chooses VMs for a want.
func (w want) place(c *state, req *managerv1.ReallocateRequest, configs map[int]*managerv1.Configuration, within reach) (placement, error) {
	p, err := c.place(within.bound(w.d), w.present, w.without, w.s)
	var short *api.CapacityError
	if errors.As(err, &short) && within != nil && w.leaves && !req.GetVoluntary() {
		// The cache has to do without its VMs, even for VMs at which the SLO is not met.
		p, err = c.place(w.d, w.present, w.without, w.s)
	}
	if err == nil && configs == nil && req.GetConfiguration() == nil && bounded(w.d.slo) {
		within.note(p.decision, w.d.distance)
	}
	return p, err
}

// reserveMore reserves the chosen memory. It returns nil if the cache has changed, or the
// memory is no longer free. A request of the cache that still waits is given up: its client
// has gone on.
func (c *state) reserveMore(req *managerv1.ReallocateRequest, w want, p placement, whole bool, within reach, t term) (r *request, err error) {
	c.mu.Lock()
	defer c.end(&err)
	ca := w.ca
	switch {
	case ca.ended:
		return nil, noCache(ca.id)
	case ca.changes != w.changes || !c.stillFree(p, w.d):
		return nil, nil
	}
	if err := ca.checkCurrent(req.GetChange()); err != nil {
		return nil, err
	}
	if req.GetVoluntary() {
		if err := ca.checkWorth(req.GetAvoidVms(), p, w.s.economy); err != nil {
			return nil, err
		}
	}
	if has := len(ca.all()); has+len(p.parts) > maxGrantsPerCache {
		return nil, &api.CapacityError{
			What: "cache " + ca.id + ": number of VMs while it moves", Asked: uint64(has + len(p.parts)), Available: maxGrantsPerCache,
		}
	}
	if old := ca.request; old != nil {
		if old.change >= req.GetChange() {
			return nil, fmt.Errorf("cache %s: change %d %w: the last one is %d", ca.id, req.GetChange(), errStale, old.change)
		}
		c.giveUp(ca, fmt.Errorf("cache %s: change %d %w: change %d has come", ca.id, old.change, errStale, req.GetChange()))
	}
	c.warmUp(p.parts, w.s.region, w.d.transport)
	d := w.d
	d.config = p.config
	if !within.holds(p.distance) {
		within = nil // the cache has to leave its VMs, and there are none so near
	}
	more := addition{
		grants: c.reserve(ca, d, p.parts), config: p.config, decision: p.decision, client: req.GetClient(), whole: whole, within: within,
		moves: req.GetMoves(),
	}
	r = c.begin(ca, more, req.GetChange(), t)
	r.waiting++
	return r, nil
}

// present lists a cache's VMs, the last one first, as a cache grows at its end (R72). Called
// under mu.
func (ca *cache) present(avoid map[string]bool) []*vm {
	var present []*vm
	seen := make(map[*vm]bool)
	for i := len(ca.grants) - 1; i >= 0; i-- {
		if v := ca.grants[i].vm; !seen[v] && !avoid[v.id] && v.usable() == nil {
			seen[v] = true
			present = append(present, v)
		}
	}
	return present
}
