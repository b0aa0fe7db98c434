package manager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/plan"
)

// Economy says when caches move to other VMs although theirs are still there: to
// cheaper ones (R29), or before they are taken away (R28).
type Economy struct {
	// Every is how often that is considered, beside each time that the allocator's
	// offers become better. Default: 30 s; negative: never.
	Every time.Duration
	// MinSaving is the least that has to be saved, as a share of what the cache
	// costs, 0 to 1 (A31). Default: 0.1.
	MinSaving float64
	// Dwell is how long a cache stays where it is, whatever could be saved (A31).
	// Default: 10 min.
	Dwell time.Duration
}

func (e *Economy) ensureDefaults() error {
	if e.Every == 0 {
		e.Every = 30 * time.Second
	}
	if e.MinSaving == 0 {
		e.MinSaving = 0.1
	}
	if e.Dwell == 0 {
		e.Dwell = 10 * time.Minute
	}
	if !(e.MinSaving > 0 && e.MinSaving <= 1) || e.Dwell < 0 {
		return fmt.Errorf("manager: moves that save %v after %v: want more than 0, up to 1, and no less than 0s", e.MinSaving, e.Dwell)
	}
	return nil
}

// move is what a cache was told to do. Guarded by catalog.mu.
type move struct {
	vms    []string // to be left together
	urgent bool     // whatever it costs
	until  time.Time
}

// errNotWorth refuses a voluntary move.
var errNotWorth = errors.New("is not worth a move")

// mover considers all caches again and again.
func (m *Manager) mover() {
	ticker := time.NewTicker(m.opts.Economy.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-m.better:
		case <-m.ctx.Done():
			return
		}
		m.considerMoves(m.ctx)
		if !pause(m.ctx, considerGap) { // offers change one after the other
			return
		}
	}
}

// considerGap is the least time between two looks at all caches.
const considerGap = 100 * time.Millisecond

// considerMoves tells caches what they had better leave.
func (m *Manager) considerMoves(ctx context.Context) {
	for _, region := range m.catalog.regions() {
		s, err := m.supply(ctx, region)
		if err != nil {
			if ctx.Err() == nil {
				m.opts.Logger.Warn("moves not considered", "cloud_region", region, "err", err)
			}
			continue
		}
		told, err := m.catalog.consider(s, m.opts.Economy)
		m.counts.note(func(n *Metrics) { n.MovesAsked += uint64(len(told)) })
		for _, t := range told {
			m.opts.Logger.Info("cache had better move", "cache", t.cache, "vms", strings.Join(t.vms, " "), "reason", t.reason)
		}
		if err != nil {
			return // the manager ends
		}
	}
}

// regions lists where clients of caches are.
func (c *catalog) regions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, ca := range c.caches {
		if !slices.Contains(all, ca.demand.cloudRegion) {
			all = append(all, ca.demand.cloudRegion)
		}
	}
	return all
}

// told is a cache that was told to move.
type told struct {
	cache  string
	vms    []string
	reason string
}

// consider looks at all caches in a cloud region, and tells those that had better
// move. What was decided of the others stands in their decisions.
func (c *catalog) consider(s supply, e Economy) (all []told, err error) {
	for _, ca := range c.reprice(s) {
		t, err := c.considerOne(ca, s, e)
		if err != nil {
			return all, err
		}
		if len(t.vms) > 0 {
			all = append(all, t)
		}
	}
	return all, nil
}

// considerOne is consider for one cache: planning takes time, and nobody else waits for
// more than that of one. It tells of no VMs where the cache stays.
func (c *catalog) considerOne(ca *cache, s supply, e Economy) (_ told, err error) {
	c.mu.Lock()
	defer c.end(&err)
	if c.caches[ca.id] != ca || !ca.settled() || s.now.Sub(ca.moved) < e.Dwell || ca.move != nil && s.now.Before(ca.move.until) {
		return told{}, nil
	}
	ca.move = nil
	leave, urgent, reason, decision := c.better(ca, s, e)
	ca.decide("move", decision)
	if len(leave) == 0 {
		return told{}, nil
	}
	ca.move = &move{urgent: urgent, until: s.now.Add(max(e.Dwell, time.Minute))}
	for _, v := range leave {
		ca.move.vms = append(ca.move.vms, v.id)
	}
	ca.log.retract(managerv1.WatchResponse_KIND_VM_DEAR)
	ca.log.append(leave[0], &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_DEAR, VmIds: ca.move.vms, Reason: reason})
	c.touchCache(ca)
	return told{ca.id, ca.move.vms, reason}, nil
}

// reprice notes what VMs cost now, for spot prices change, and lists the caches in the
// cloud region.
func (c *catalog) reprice(s supply) []*cache {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.vms {
		for _, o := range s.offers {
			if v.launched && v.Type != "" && v.CloudRegion == s.region && v.Type == o.Type && v.Spot == o.Spot && int(v.Distance) == o.Distance {
				v.Price = o.Price
			}
		}
	}
	var all []*cache
	for _, ca := range c.caches {
		if ca.demand.cloudRegion == s.region {
			all = append(all, ca)
		}
	}
	return all
}

// settled says whether a cache has all that it needs, and nothing goes on. Called
// under mu.
func (ca *cache) settled() bool {
	return ca.ready && len(ca.pending) == 0 && len(ca.shares) > 0 && usable(ca.shares) == nil
}

// better finds the VMs that a cache had better leave: those that the cheapest plan
// does without, in which the VMs that it has are offers among others. Called under mu.
func (c *catalog) better(ca *cache, s supply, e Economy) (leave []*vm, urgent bool, reason string, _ *managerv1.Decision) {
	d := ca.demand
	d.regions = 0
	held := make(map[*vm]uint32)
	var present []*vm // in the cache's order
	for _, sh := range ca.shares {
		if held[sh.vm] == 0 {
			present = append(present, sh.vm)
		}
		held[sh.vm] += sh.regions
		d.regions += sh.regions
	}
	now := total(ca.shares)
	from := s
	from.offers = slices.Clone(s.offers)
	keep := make(map[int]*vm) // by offer
	for _, v := range present {
		if v.Spot && brief(v, s) {
			urgent = true
			continue
		}
		keep[len(from.offers)] = v
		price := v.Price
		if !v.launched {
			price = plan.Server{Memory: v.Memory, Price: v.Price}.Share(int(held[v]), d.regionSize)
		}
		from.offers = append(from.offers, plan.Offer{
			Type: "kept: VM " + v.id, Memory: uint64(held[v]) * d.regionSize, Cores: math.MaxUint16,
			Distance: int(v.Distance), Price: price, Available: 1,
		})
	}
	if now == 0 && !urgent {
		return nil, false, "", nil
	}
	avoid := make(map[string]bool)
	for _, v := range present {
		avoid[v.id] = true
	}
	chosen, err := plan.Choose(d.plan(), from.offers, servers(c.pool(avoid, s.now)), s.policy)
	if err != nil {
		return nil, false, "", nil // there is nowhere to go
	}
	for i, v := range keep {
		if !slices.ContainsFunc(chosen.Parts, func(p plan.Part) bool { return p.Offer == i }) {
			leave = append(leave, v)
		}
	}
	for _, v := range present {
		if v.Spot && brief(v, s) {
			leave = append(leave, v)
		}
	}
	slices.SortFunc(leave, func(a, b *vm) int { return slices.Index(present, a) - slices.Index(present, b) })
	saving := now - chosen.Price
	decision := decisionOf(chosen.Explanation, chosen.Price, s.now)
	share := 0.0
	if now > 0 {
		share = float64(saving) / float64(now)
	}
	switch {
	case len(leave) == 0:
		return nil, false, "", nil
	case urgent:
		return leave, true, "VMs of the type are reclaimed soon", decision
	case saving <= 0 || share < e.MinSaving:
		reason := fmt.Sprintf("stay: of %v %v could be saved, which is less than %.0f%%", now, max(0, saving), 100*e.MinSaving)
		decision.Verdicts = append([]*managerv1.Verdict{{Name: "a move", Reason: reason, PriceMicros: int64(chosen.Price)}}, decision.Verdicts...)
		return nil, false, reason, decision
	}
	reason = fmt.Sprintf("others cost %v less of %v", saving, now)
	decision.Verdicts = append([]*managerv1.Verdict{{Name: "a move", Reason: reason, PriceMicros: int64(chosen.Price)}}, decision.Verdicts...)
	return leave, false, reason, decision
}

// brief says whether VMs of v's kind are expected to be reclaimed too soon.
func brief(v *vm, s supply) bool {
	for _, o := range s.offers {
		if o.Type == v.Type && o.Spot && int(v.Distance) == o.Distance {
			return o.Lifetime > 0 && o.Lifetime < s.policy.MinLifetime
		}
	}
	return false
}

// worth refuses a voluntary move that was not asked for, or that costs too much by
// now. Called under mu.
func (ca *cache) worth(avoid []string, p placement, e Economy) error {
	if ca.move == nil || !slices.Equal(ca.move.vms, avoid) {
		return fmt.Errorf("cache %s: leaving %s %w", ca.id, strings.Join(avoid, " "), errNotWorth)
	}
	if ca.move.urgent {
		return nil
	}
	var left []*share
	for _, s := range ca.shares {
		if slices.Contains(avoid, s.vm.id) {
			left = append(left, s)
		}
	}
	now, then := total(left), plan.Price(0)
	if p.decision != nil {
		then = plan.Price(p.decision.GetPriceMicros())
	}
	if float64(then) > float64(now)*(1-e.MinSaving) {
		ca.move = nil
		return fmt.Errorf("cache %s: %v in the place of %v %w", ca.id, then, now, errNotWorth)
	}
	return nil
}
