package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
)

// Economy configures voluntary moves: to cheaper VMs (R29), away from spot VMs that will soon
// be reclaimed (R28), or back to a distance at which the SLO is met.
type Economy struct {
	// Every is the interval at which moves are considered, in addition to each time when
	// offers become better. Default: 30 s; negative: never.
	Every time.Duration
	// MinSaving is the minimum that a move saves, as a part of the cache's price, 0 to 1
	// (A31). Default: 0.1.
	MinSaving float64
	// Dwell is the minimum time between a cache's moves (A31). Default: 10 min.
	Dwell time.Duration
}

func (e *Economy) ensureDefaults() error {
	e.Every = cmp.Or(e.Every, 30*time.Second)
	e.MinSaving = cmp.Or(e.MinSaving, 0.1)
	e.Dwell = cmp.Or(e.Dwell, 10*time.Minute)
	if !(e.MinSaving > 0 && e.MinSaving <= 1) || e.Dwell < 0 {
		return fmt.Errorf("manager: minimum saving %v, dwell %v: want a saving above 0, up to 1, and a dwell of 0s or more", e.MinSaving, e.Dwell)
	}
	return nil
}

// move is a move that a cache was asked to make. Guarded by state.mu.
type move struct {
	vms    []string // to be left together
	urgent bool     // at any price
	until  time.Time
}

// errNotWorth is the error of a voluntary move that does not save enough.
var errNotWorth = errors.New("is not worth a move")

// mover is the loop that considers moves of all caches.
func (l *leader) mover() {
	ticker := time.NewTicker(l.opts.Economy.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-l.better:
		case <-l.ctx.Done():
			return
		}
		l.considerMoves(l.ctx)
		if !clock.Sleep(l.ctx, considerGap) { // several offers may change in sequence
			return
		}
	}
}

// considerGap is the minimum time between two rounds of mover.
const considerGap = 100 * time.Millisecond

// considerMoves tells caches which VMs to leave.
func (l *leader) considerMoves(ctx context.Context) {
	alive := l.lives()
	repriced := make(map[string]bool) // cloud regions
	var pace pace
	for client, caches := range l.state.clients() {
		if !pace.rest(ctx) {
			return
		}
		began := time.Now()
		s, err := l.supplied(ctx, client, alive)
		if err == nil && !repriced[s.region] {
			repriced[s.region] = true
			l.state.reprice(s.prices())
		}
		pace.worked(began)
		if err != nil {
			if ctx.Err() == nil {
				l.opts.Logger.Warn("moves not considered", "cloud_region", client.region, "clients_at", client.machine, "err", err)
			}
			continue
		}
		requests, err := l.consider(ctx, s, caches, &pace)
		l.counts.note(func(n *Metrics) { n.MovesAsked += uint64(len(requests)) })
		for _, r := range requests {
			l.opts.Logger.Info("cache is asked to move", "cache", r.cache, "vms", strings.Join(r.vms, " "), "reason", r.reason)
		}
		if err != nil {
			return // the manager ends
		}
	}
}

// clients lists caches by where their clients are.
func (c *state) clients() map[from][]*cache {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[from][]*cache)
	for ca := range pieces(c, c.caches) {
		at := ca.demand.from()
		all[at] = append(all[at], ca)
	}
	return all
}

// moveRequest is a cache that was asked to move, and why.
type moveRequest struct {
	cache  string
	vms    []string
	reason string
}

// consider checks caches whose clients are where a supply is for, and tells those to move
// that should. The decisions about the others are kept with them.
func (l *leader) consider(ctx context.Context, s supply, caches []*cache, pace *pace) (all []moveRequest, err error) {
	prices := s.prices()
	for _, ca := range caches {
		if !pace.rest(ctx) {
			return all, nil
		}
		began := time.Now()
		models := l.search.now.Load() // before the search, which may use later ones
		v, ok := l.state.view(ca, s, prices, l.opts.Economy)
		if !ok {
			continue
		}
		switch {
		case !bounded(v.d.slo):
			v.known = knownReach{}
		case !v.known.of(v.d, models):
			v.known = knownReach{v.d.slo, v.d.config, v.d.client, models, l.reachFor(v.d)}
		}
		r, err := l.state.advise(ca, v, v.better(l.state, l.opts.Economy, v.known.within), l.opts.Economy)
		if err != nil {
			return all, err
		}
		if len(r.vms) > 0 {
			all = append(all, r)
		}
		pace.worked(began)
	}
	return all, nil
}

// pace leaves the processors to calls while the mover looks at many clients and caches.
type pace struct{ since time.Duration } // that it has worked without a rest

// worked notes that the mover has worked from then until now.
func (p *pace) worked(from time.Time) { p.since += time.Since(from) }

// rest rests if the mover has worked for long. It returns false when ctx ends.
func (p *pace) rest(ctx context.Context) bool {
	if p.since <= moverBurst {
		return true
	}
	rest := p.since * (100 - moverShare) / moverShare
	p.since = 0
	return clock.Sleep(ctx, rest)
}

// The mover works for moverBurst at a time, and for moverShare percent of the time.
const (
	moverBurst = 10 * time.Millisecond
	moverShare = 4
)

// view is a copy of a cache that may move, with the VMs and offers from which it can choose.
// The plan is made from it without state.mu.
type view struct {
	changes uint64 // of the cache when it was copied
	d       demand // of all its regions
	held    []held // in the cache's order
	price   plan.Price
	avoid   map[string]bool // the VMs that it has
	known   knownReach
	s       supply
}

// held are a cache's grants on one VM.
type held struct {
	node.VM
	launched bool
	regions  uint32
}

// view returns false for a cache that may not move now. The cache's VMs get their present prices.
func (c *state) view(ca *cache, s supply, p prices, e Economy) (v view, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range [][]*grant{ca.grants, ca.pending} {
		for _, g := range all {
			p.update(g.vm)
		}
	}
	if ca.ended || !ca.settled() || s.now.Sub(ca.moved) < e.Dwell || ca.move != nil && s.now.Before(ca.move.until) {
		return v, false
	}
	v = view{changes: ca.changes, d: ca.demand, price: total(ca.grants), known: ca.known, s: s}
	v.d.regions = 0
	at := make(map[*vm]int)
	avoid := make(map[string]bool)
	for _, sh := range ca.grants {
		i, seen := at[sh.vm]
		if !seen {
			i, at[sh.vm], avoid[sh.vm.id] = len(v.held), len(v.held), true
			h := held{VM: sh.vm.VM, launched: sh.vm.launched}
			h.ID = sh.vm.id
			v.held = append(v.held, h)
		}
		v.held[i].regions += sh.regions
		v.d.regions += sh.regions
	}
	v.avoid = avoid
	return v, true
}

// advice tells a cache to leave VMs, all together, or to stay if there are none, and why.
type advice struct {
	leave    []string
	urgent   bool // at any price
	reason   string
	decision *managerv1.Decision // nil: nothing was decided
}

// advise tells a cache the advice for a view of it, unless the cache has changed meanwhile. It
// returns no VMs if the cache stays.
func (c *state) advise(ca *cache, v view, a advice, e Economy) (_ moveRequest, err error) {
	c.mu.Lock()
	defer c.end(&err)
	if ca.ended || ca.changes != v.changes {
		return moveRequest{}, nil
	}
	ca.move, ca.known = nil, v.known
	ca.decide("move", a.decision)
	if len(a.leave) == 0 {
		return moveRequest{}, nil
	}
	ca.move = &move{vms: a.leave, urgent: a.urgent, until: v.s.now.Add(max(e.Dwell, time.Minute))}
	ca.log.remove(func(e event) bool { return e.message.GetKind() == managerv1.WatchResponse_KIND_VM_DEAR })
	about := slices.IndexFunc(ca.grants, func(s *grant) bool { return s.vm.id == a.leave[0] })
	c.touch(&ca.decisions)
	c.tell(ca, ca.grants[about].vm, &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_DEAR, VmIds: a.leave, Reason: a.reason})
	return moveRequest{ca.id, a.leave, a.reason}, nil
}

// prices are the prices of offers, by kind.
type prices struct {
	at     map[menu.Kind]plan.Price
	offers map[menu.Kind]int // at any distance
}

func (s supply) prices() prices {
	p := prices{make(map[menu.Kind]plan.Price), make(map[menu.Kind]int)}
	for _, o := range s.offers {
		k := kindOf(o, s.region)
		p.at[k], p.at[anywhere(k)] = o.Price, o.Price
		p.offers[anywhere(k)]++
	}
	return p
}

// anywhere is a kind at all distances.
func anywhere(k menu.Kind) menu.Kind {
	k.Distance = -1
	return k
}

// update sets the present price of a launched VM, as spot prices change. Called under state.mu.
func (p prices) update(v *vm) {
	k := v.kind()
	price, ok := p.at[k]
	if at := anywhere(k); !ok && p.offers[at] == 1 { // it is not where it was offered
		price, ok = p.at[at], true
	}
	if ok && v.launched && v.Type != "" {
		v.Price = price
	}
}

// reprice updates the prices of VMs that no cache has. For others, the offers for the cache's client
// count: see view.
func (c *state) reprice(p prices) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for v := range pieces(c, c.vms) {
		if len(v.held) == 0 {
			p.update(v)
		}
	}
}

// settled reports whether a cache has usable grants and no pending ones. Called under mu.
func (ca *cache) settled() bool {
	return ca.ready && len(ca.pending) == 0 && len(ca.grants) > 0 && usable(ca.grants) == nil
}

// better finds the VMs that a cache should leave: those too far away for its SLO, if there
// are nearer ones, or else those that the cheapest plan does not use. In that plan, the
// cache's own VMs are offers among others.
func (v view) better(c *state, e Economy, within reach) advice {
	if a := v.nearer(c, within); len(a.leave) > 0 {
		return a
	}
	from := v.s
	from.offers = slices.Clone(v.s.offers)
	keep := make(map[int]string) // id by offer
	var shortLived []string
	for _, h := range v.held {
		if h.shortLived(v.s) {
			shortLived = append(shortLived, h.ID)
			continue
		}
		keep[len(from.offers)] = h.ID
		price := h.Price
		if !h.launched {
			price = plan.Server{Memory: h.Memory, Price: h.Price}.Share(int(h.regions), v.d.regionSize)
		}
		from.offers = append(from.offers, plan.Offer{
			Type: "kept: VM " + h.ID, Memory: uint64(h.regions) * v.d.regionSize, Cores: math.MaxUint16,
			Distance: int(h.Distance), Price: price, Available: 1,
		})
	}
	if v.price == 0 && len(shortLived) == 0 {
		return advice{}
	}
	chosen, err := c.choose(v.d, v.avoid, nil, from)
	if err != nil {
		return advice{} // there are no other VMs
	}
	leave := shortLived
	for i, id := range keep {
		if !slices.ContainsFunc(chosen.Parts, func(p plan.Part) bool { return p.Offer == i }) {
			leave = append(leave, id)
		}
	}
	v.inOrder(leave)
	saving, decision := v.price-chosen.Price, decisionOf(chosen.Explanation, chosen.Price, v.s.now)
	part := 0.0
	if v.price > 0 {
		part = float64(saving) / float64(v.price)
	}
	switch {
	case len(leave) == 0:
		return advice{}
	case len(shortLived) > 0:
		return advice{leave: leave, urgent: true, reason: "VMs of this type are expected to be reclaimed soon", decision: decision}
	case saving <= 0 || part < e.MinSaving:
		reason := fmt.Sprintf("stay: a move saves %v of %v, less than %.0f%%", max(0, saving), v.price, 100*e.MinSaving)
		return advice{decision: aboutMove(decision, reason)}
	}
	reason := fmt.Sprintf("other VMs save %v of %v", saving, v.price)
	return advice{leave: leave, reason: reason, decision: aboutMove(decision, reason)}
}

// nearer finds the cache's VMs that are too far away for its SLO, if nearer ones are
// available now at any price. The cache moved there because there were no others.
func (v view) nearer(c *state, within reach) advice {
	d := within.bound(v.d)
	if within == nil || within.holds(v.d.distance) {
		return advice{}
	}
	var leave []string
	d.regions = 0
	for _, h := range v.held {
		if !within.holds(h.Distance) {
			leave = append(leave, h.ID)
			d.regions += h.regions
		}
	}
	if len(leave) == 0 {
		return advice{}
	}
	chosen, err := c.choose(d, v.avoid, nil, v.s)
	if err != nil || !within.holds(uint32(chosen.Distance)) {
		return advice{} // there are still no nearer VMs
	}
	distance := 0
	for _, p := range chosen.Parts {
		if p.Server >= 0 {
			distance = max(distance, int(chosen.vms[p.Server].Distance))
		} else {
			distance = max(distance, v.s.offers[p.Offer].Distance)
		}
	}
	reason := fmt.Sprintf("there are VMs at distance %d again, where the SLO is met", distance)
	decision := aboutMove(decisionOf(chosen.Explanation, chosen.Price, v.s.now), reason)
	return advice{leave: leave, urgent: true, reason: reason, decision: decision}
}

// aMove is the name of the verdict on a move.
const aMove = "a move"

// aboutMove adds to the start of a decision why the cache moves or stays.
func aboutMove(d *managerv1.Decision, reason string) *managerv1.Decision {
	d.Verdicts = append([]*managerv1.Verdict{{Name: aMove, Reason: reason, PriceMicros: d.GetPriceMicros()}}, d.Verdicts...)
	return d
}

// inOrder sorts ids in the order of the cache's VMs.
func (v view) inOrder(ids []string) {
	at := func(id string) int {
		return slices.IndexFunc(v.held, func(h held) bool { return h.ID == id })
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(at(a), at(b)) })
}

// shortLived reports whether the expected lifetime of the VM's kind is too short.
func (h held) shortLived(s supply) bool {
	for _, o := range s.offers {
		if h.Spot && o.Type == h.Type && o.Spot && int(h.Distance) == o.Distance {
			return o.Lifetime > 0 && o.Lifetime < s.policy.MinLifetime
		}
	}
	return false
}

// checkWorth reports a voluntary move that the cache was not asked to make, or that no longer
// saves enough. Called under mu.
func (ca *cache) checkWorth(avoid []string, p placement, e Economy) error {
	if ca.move == nil || !slices.Equal(ca.move.vms, avoid) {
		return fmt.Errorf("cache %s: leaving %s %w", ca.id, strings.Join(avoid, " "), errNotWorth)
	}
	if ca.move.urgent {
		return nil
	}
	var left []*grant
	for _, s := range ca.grants {
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
		return fmt.Errorf("cache %s: %v instead of %v %w", ca.id, then, now, errNotWorth)
	}
	return nil
}
