package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/api"
)

// Errors of a well-formed Settle.
var (
	errGrant = errors.New("does not belong to the cache")
	errCores = errors.New("too few cores")
	// errSettled is a repetition of a Settle that has succeeded, which is no failure.
	errSettled = errors.New("settled already")
)

// settle serves Settle: it changes the state, then waits a while for the servers to take the
// other grants back, and to say what they lend of those that have shrunk.
func (l *leader) settle(ctx context.Context, req *managerv1.SettleRequest) (*managerv1.SettleResponse, error) {
	if req.GetChange() == 0 {
		return nil, api.Refuse(connect.CodeInvalidArgument, errNoChange)
	}
	s, err := l.state.settle(req, l.opts.now())
	if errors.Is(err, errSettled) {
		if err = l.state.written(); err == nil {
			return l.settledAs(req)
		}
	}
	if err != nil {
		return nil, refuse(err, connect.CodeInvalidArgument)
	}
	l.noticeLeft(s.dropped)
	if l.rates.report(s.transport, s.source, req.GetMovedBytes(), s.returned, time.Duration(req.GetMovedMs())*time.Millisecond) {
		l.remember()
	}
	l.awaitFreed(ctx, s.dropped)
	l.awaitAll(ctx, s.looked)
	l.opts.Logger.Info("cache settled", "cache", req.GetCacheId(), "capacity", units.Size(req.GetCapacity()).String(),
		"grants", len(req.GetGrants()), "released", len(s.dropped))
	return l.settledAs(req)
}

// settledAs answers a Settle with the terms that the cache's grants have now.
func (l *leader) settledAs(req *managerv1.SettleRequest) (*managerv1.SettleResponse, error) {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	ca, err := l.state.known(req.GetCacheId())
	if err != nil {
		return nil, refuse(err, connect.CodeInvalidArgument)
	}
	grants, err := l.withTokens(ca, req.GetHolder(), protos(ca.grants, false), ca.grants)
	if err != nil {
		return nil, refuse(err, connect.CodeInvalidArgument)
	}
	return &managerv1.SettleResponse{Grants: grants}, nil
}

// noticeLeft counts how much notice was left when a cache had left reclaimed VMs.
func (l *leader) noticeLeft(dropped []*grant) {
	now := l.opts.now()
	seen := make(map[*vm]bool)
	for _, s := range dropped {
		l.state.mu.Lock()
		leaves, failed := s.vm.leaves, s.vm.failed != ""
		l.state.mu.Unlock()
		if !leaves.IsZero() && !failed && !seen[s.vm] {
			seen[s.vm] = true
			l.counts.notices.add(leaves.Sub(now))
		}
	}
}

// settlement is what a Settle has changed.
type settlement struct {
	dropped   []*grant          // they leave
	looked    []<-chan struct{} // closed when the servers of grants that shrink were asked
	returned  uint64            // bytes of what was dropped and of what the others shrank by
	transport string            // of the cache
	source    string            // of the rates that its client reports
}

// settle sets a cache's grants to those of a request; the others leave. The grants may be too few
// for the capacity: then the rest of the cache is lost, as its client knows. An error changes nothing.
func (c *state) settle(req *managerv1.SettleRequest, at time.Time) (s settlement, err error) {
	c.mu.Lock()
	defer c.end(&err)
	ca, err := c.held(req.GetCacheId(), req.GetHolder())
	if err != nil {
		return s, err
	}
	switch change := req.GetChange(); {
	case change == ca.change:
		return s, errSettled
	case change < ca.change:
		return s, fmt.Errorf("cache %s: change %d %w: the last one is %d", ca.id, change, errStale, ca.change)
	}
	now, dropped, later, err := ca.choose(req)
	if err != nil {
		return s, err
	}
	d, err := decideSettled(ca.demand, req)
	if err != nil {
		return s, err
	}
	if d.config != ca.demand.config {
		for i := range now {
			now[i].cores = d.coresFor(now[i].regions)
		}
	}
	if err := errors.Join(enoughCores(now), checkPlaces(req.GetPlaces(), now, d.regions)); err != nil {
		return s, err
	}
	c.touch(ca)
	s = settlement{dropped: dropped, transport: d.transport, source: d.source}
	for _, g := range dropped {
		s.returned += uint64(g.regions) * g.regionSize
	}
	for _, n := range now {
		s.returned += uint64(n.grant.regions-n.regions) * n.grant.regionSize
		if c.apply(n) {
			s.looked = append(s.looked, n.grant.looked)
		}
	}
	if far := farthest(now); far > 0 || d.config != ca.demand.config {
		d.distance = far
	}
	if d.slo != ca.demand.slo && !proto.Equal(d.slo, ca.demand.slo) || d.config != ca.demand.config {
		ca.measurements.restart(at)
	}
	reconfigured := d.config != ca.demand.config
	ca.demand, ca.grants, ca.pending = d, nil, later
	if reconfigured {
		c.settledWith(ca, d.config)
	}
	ca.change = req.GetChange()
	ca.settledPlaces(req.GetPlaces())
	for _, n := range now {
		ca.grants = append(ca.grants, n.grant)
	}
	if len(dropped) > 0 {
		ca.moved = at
	}
	if ca.move != nil && !slices.ContainsFunc(ca.grants, func(g *grant) bool { return slices.Contains(ca.move.vms, g.vm.id) }) {
		ca.move = nil
		if ca.keeping.moving { // it has left slow VMs
			ca.keeping.moving = false
			ca.measurements.restart(at)
		}
	}
	c.leave(dropped)
	ca.log.remove(func(e event) bool { return e.vm != nil && !ca.holds(e.vm) })
	c.proceed(ca, term{}) // a request that the client has given up ends
	return s, nil
}

// settled is a grant with its new values.
type settled struct {
	grant   *grant
	regions uint32
	cores   uint32
}

// farthest returns the largest distance of the VMs; 0: none is known.
func farthest(now []settled) uint32 {
	far := uint32(0)
	for _, s := range now {
		far = max(far, s.grant.vm.Distance)
	}
	return far
}

// choose returns the grants that a request names, those that it does not, and those that were
// given later than the request was made. Called under mu.
func (ca *cache) choose(req *managerv1.SettleRequest) (now []settled, dropped, later []*grant, err error) {
	left := make(map[string]*grant)
	for _, s := range ca.all() {
		left[s.id] = s
	}
	seen := make(map[string]bool)
	for _, n := range req.GetGrants() {
		s := left[n.GetId()]
		switch {
		case seen[n.GetId()]:
			return nil, nil, nil, fmt.Errorf("grant %.40q is named twice", n.GetId())
		case s == nil:
			return nil, nil, nil, fmt.Errorf("grant %.40q %w", n.GetId(), errGrant)
		case n.GetRegions() < 1 || n.GetRegions() > s.regions:
			return nil, nil, nil, fmt.Errorf("grant %s: %d regions: want 1 to %d", s.id, n.GetRegions(), s.regions)
		}
		seen[s.id] = true
		delete(left, s.id)
		now = append(now, settled{grant: s, regions: n.GetRegions(), cores: s.cores})
	}
	for _, s := range ca.all() {
		switch {
		case left[s.id] == nil:
		case s.change > req.GetChange():
			later = append(later, s)
		default:
			dropped = append(dropped, s)
		}
	}
	return now, dropped, later, nil
}

// enoughCores checks that VMs have enough cores for the grants' new values. Those of dropped
// grants are not free yet. Called under mu.
func enoughCores(now []settled) error {
	change := make(map[*vm]int64)
	for _, s := range now {
		change[s.grant.vm] += int64(s.cores) - int64(s.grant.cores)
	}
	for v, n := range change {
		if v.failed == "" && n > 0 && int64(v.threads)+n > int64(v.Cores) {
			return fmt.Errorf("VM %s has %w for the configuration: %d of %d are free, %d more are needed",
				v.id, errCores, v.Cores-min(v.Cores, v.threads), v.Cores, n)
		}
	}
	return nil
}

// apply reports whether the grant's server is to be asked what it lends. Called under mu.
func (c *state) apply(n settled) (shrinks bool) {
	g, v := n.grant, n.grant.vm
	if g.regions == n.regions && g.cores == n.cores {
		return false
	}
	shrinks = n.regions < g.regions && v.failed == ""
	v.threads += n.cores - g.cores // modulo 2^32, as it may be less
	g.regions, g.cores = n.regions, n.cores
	c.list(v)
	c.touch(g)
	if shrinks {
		g.looked = cmp.Or(g.looked, make(chan struct{}))
		c.queue(g.key())
	}
	return shrinks
}
