package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/model"
)

// This file keeps SLOs. When an SLO is broken (slo.go), the cache's last windows say what its
// configuration gives, and the models what it should give. Which of the two is wrong depends on the
// other caches over the same transport and network at the same distance:
//
//   - Most of them get what the models say: the cache's VMs are slow, and it is asked to leave them.
//   - Else the models are wrong there, and are corrected. The search then finds another
//     configuration, and the cache is asked to have it. If there is none, and there are other VMs,
//     the cache is asked to leave its own. A model is not corrected by factors that no machine
//     or network explains.
//
// A cache whose SLO is kept for long, and would be with fewer threads, is asked for the
// configuration with fewer. An observation of a configuration that was slow holds for a while, so
// the cache does not go back and forth.
//
// A cache is asked for one change at a time, for two until its SLO is kept again, for no more than
// SLOChanges in an hour, and for another
// configuration only if the manager has found the present one.

// SLOWatch says what is done with what clients measure.
type SLOWatch int

// Modes of SLOWatch.
const (
	Correct SLOWatch = iota // judge it, and change what breaks an SLO
	Observe                 // judge it
	Ignore                  // nothing
)

// ParseSLOWatch parses the name of a mode: on, observe or off.
func ParseSLOWatch(s string) (SLOWatch, error) {
	if i := slices.Index(sloWatches[:], s); i >= 0 {
		return SLOWatch(i), nil
	}
	return 0, fmt.Errorf("%q: want %s", s, strings.Join(sloWatches[:], ", "))
}

func (w SLOWatch) String() string { return sloWatches[w] }

var sloWatches = [...]string{"on", "observe", "off"}

// DefaultSLOChanges is the default of Options.SLOChanges.
const DefaultSLOChanges = 4

const (
	// spareWindows in a row that kept the SLO are enough to look for a configuration with fewer
	// threads. Its prediction must be better than the SLO by spareMargin and the manager's margin.
	spareWindows = 12
	spareMargin  = 0.15

	// maxTries is how often a cache is asked for a change until its SLO is kept again.
	maxTries = 2

	// likePeers is the ratio up to which a cache is as slow as another, by what the models say.
	likePeers = 1.3
	maxPeers  = 32

	// wishHolds is the time after which a cache that was asked for a configuration, and has another
	// one, may be asked for something else.
	wishHolds = time.Minute

	// expireEvery is the interval at which corrections are looked at that may hold no more.
	expireEvery = 10 * time.Second
)

// keeping is what is done to keep a cache's SLO. Guarded by state.mu.
type keeping struct {
	wish    *wish
	changes []time.Time // in the last hour
	tries   int         // changes since the SLO was kept last
	left    bool        // it was asked to leave its VMs since then
	told    string      // the last reason for doing nothing, since the SLO was kept last
	moving  bool        // it is asked to leave its VMs because they are slow
}

// wish is a configuration that a cache was asked to have.
type wish struct {
	config, insteadOf *managerv1.Configuration
	until             time.Time
}

// allows reports whether a configuration is the one that was asked for, or the larger of both, which
// a client has in between.
func (w *wish) allows(c *managerv1.Configuration) bool {
	if w == nil {
		return false
	}
	a, b := w.config, w.insteadOf
	both := &managerv1.Configuration{
		ClientThreads: max(a.GetClientThreads(), b.GetClientThreads()), ServerThreads: max(a.GetServerThreads(), b.GetServerThreads()),
		BatchSize: max(a.GetBatchSize(), b.GetBatchSize()), QueueDepth: max(a.GetQueueDepth(), b.GetQueueDepth()),
	}
	return proto.Equal(c, a) || proto.Equal(c, b) || proto.Equal(c, both)
}

// settledWith notes that a cache has another configuration. Called under mu.
func (c *state) settledWith(ca *cache, config *managerv1.Configuration) {
	w := ca.keeping.wish
	ca.demand.chosen = w.allows(config) || proto.Equal(config, ca.last.GetConfiguration())
	if w != nil && proto.Equal(config, w.config) {
		ca.keeping.wish = nil
		ca.log.remove(isWish)
	}
}

func isWish(e event) bool {
	return e.message.GetKind() == managerv1.WatchResponse_KIND_RECONFIGURE
}

// keeper is the loop that keeps SLOs.
func (l *leader) keeper() {
	ticker := time.NewTicker(expireEvery)
	defer ticker.Stop()
	for {
		select {
		case <-l.breach:
		case <-ticker.C:
			if err := l.search.expire(l.opts.now()); err != nil {
				l.opts.Logger.Warn("corrections of models still hold", "err", err)
			}
		case <-l.ctx.Done():
			return
		}
		l.keepDue()
	}
}

// keepDue considers the caches that reported something since the last call.
func (l *leader) keepDue() {
	for _, ca := range l.state.takeDue() {
		if err := l.keep(l.ctx, ca); err != nil && l.ctx.Err() == nil {
			l.opts.Logger.Warn("nothing is done about the SLO of a cache", "cache", ca.id, "err", err)
		}
	}
}

// takeDue returns the caches that are to be considered.
func (c *state) takeDue() []*cache {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := slices.Collect(maps.Keys(c.due))
	clear(c.due)
	slices.SortFunc(due, func(a, b *cache) int { return strings.Compare(a.id, b.id) })
	return due
}

// breach is a copy of what is known of a cache whose SLO is broken, or is kept for long.
type breach struct {
	changes uint64 // of the cache
	d       demand
	broken  bool
	tries   int
	left    bool
	got     model.Performance // with full queues
	full    bool              // the queues were full
	vms     []string
	regions uint32
	peers   []peer
	unheard bool // there are peers that have reported nothing since the SLO was missed first
}

// peer is another cache at the same place, whose queues are full.
type peer struct {
	d      demand
	got    model.Performance
	broken bool
	vms    []string
}

// breachOf returns false if nothing is to be done about a cache now.
func (c *state) breachOf(ca *cache, now time.Time, most int, dwell time.Duration) (b breach, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &ca.keeping
	if k.wish != nil && !now.Before(k.wish.until) { // the client is too old for it, or could not do it
		k.wish = nil
		ca.log.remove(isWish)
	}
	k.changes = slices.DeleteFunc(k.changes, func(at time.Time) bool { return now.Sub(at) >= time.Hour })
	b = breach{changes: ca.changes, d: ca.demand, broken: ca.measurements.broken, tries: k.tries, left: k.left}
	switch {
	case ca.ended || !ca.settled() || ca.request != nil || k.wish != nil || ca.move != nil && now.Before(ca.move.until):
		return b, false
	case len(k.changes) >= most:
		return b, false
	case !b.broken && (!ca.demand.chosen || now.Sub(ca.moved) < dwell || len(k.changes) > 0 && now.Sub(k.changes[len(k.changes)-1]) < dwell):
		return b, false
	}
	windows, verdict := brokenWindows, verdictMissed
	if !b.broken {
		windows, verdict = spareWindows, verdictKept
	}
	if b.got, b.full, ok = ca.gives(windows, verdict, time.Time{}); !ok {
		return b, false
	}
	b.vms = vmsOf(ca)
	for _, g := range ca.grants {
		b.regions += g.regions
	}
	if !b.broken {
		return b, true
	}
	at, since := placeOf(ca.demand), ca.measurements.missedSince()
	for o := range pieces(c, c.caches) {
		if o == ca || !o.settled() || len(b.peers) == maxPeers || placeOf(o.demand) != at || !o.measurements.fresh(now) {
			continue
		}
		got, full, known := o.gives(brokenWindows, verdictNone, since)
		switch {
		case !known:
			b.unheard = true
		case full || o.measurements.broken:
			b.peers = append(b.peers, peer{o.demand, got, o.measurements.broken, vmsOf(o)})
		}
	}
	return b, !ca.ended && ca.changes == b.changes
}

// vmsOf lists the VMs of a cache, each once. Called under mu.
func vmsOf(ca *cache) (all []string) {
	for _, g := range ca.grants {
		if !slices.Contains(all, g.vm.id) {
			all = append(all, g.vm.id)
		}
	}
	return all
}

// fresh reports whether the latest window has ended lately. Called under mu.
func (m *measurements) fresh(now time.Time) bool {
	if len(m.windows) == 0 {
		return false
	}
	w := &m.windows[len(m.windows)-1]
	return now.UnixMilli()-w.ended < time.Minute.Milliseconds()+2*int64(w.lasted)
}

// missedSince returns when the first of the last windows began that missed the SLO. Called under mu.
func (m *measurements) missedSince() (began time.Time) {
	n := 0
	for i := len(m.windows) - 1; i >= 0 && n < brokenWindows; i-- {
		w := &m.windows[i]
		if w.verdict == verdictNone {
			continue
		}
		if n++; w.verdict == verdictMissed {
			began = time.UnixMilli(w.ended - int64(w.lasted))
		}
	}
	return began
}

// gives returns what a cache gives with full queues, as the mean of those of its last judged windows
// that have a verdict, verdictNone being any, and began after a time; and whether the queues were
// full. Called under mu.
func (ca *cache) gives(windows int, of verdict, after time.Time) (got model.Performance, full, ok bool) {
	var sum figures
	n, seen := 0.0, 0
	m := &ca.measurements
	for i := len(m.windows) - 1; i >= 0 && seen < windows; i-- {
		w := &m.windows[i]
		began := w.ended - int64(w.lasted)
		if began < m.since.UnixMilli() || !after.IsZero() && began < after.UnixMilli() {
			break
		}
		if w.verdict == verdictNone {
			continue
		}
		if seen++; of != verdictNone && w.verdict != of {
			continue
		}
		f := w.of(ca.demand.slo.GetOperations())
		sum.mops += f.mops
		sum.meanUs += f.meanUs
		sum.inFlight += f.inFlight
		n++
	}
	if n == 0 || !(sum.mops > 0 && sum.meanUs > 0 && sum.inFlight > 0) {
		return got, false, false
	}
	allowed, inFlight := allowedBy(ca.demand.config), sum.inFlight/n
	got = model.Performance{LatencyUs: sum.meanUs / n * min(1, allowed/inFlight), Mops: sum.mops / n * max(1, allowed/inFlight)}
	return got, inFlight >= fullShare*allowed, true
}

// allowedBy returns how many operations may be in flight.
func allowedBy(c *managerv1.Configuration) float64 {
	return float64(c.GetClientThreads()) * float64(c.GetBatchSize()) * float64(c.GetQueueDepth())
}

// observation returns what a cache's configuration gives, in factors of what the models say.
func (l *leader) observation(d demand, got model.Performance, full bool) (model.Observation, bool) {
	p, known := predictIn(l.search.now.Load().base, d)
	if !known {
		return model.Observation{}, false
	}
	o := model.Observe(model.Config(planConfig(d.config)), p, got)
	if !full { // fewer operations in flight are faster than the model says, but not slower
		o.Latency = max(1, o.Latency)
		o.Mops = 1 / o.Latency
	}
	return o, true
}

// keep considers a cache whose SLO is broken, or is kept for long.
func (l *leader) keep(ctx context.Context, ca *cache) error {
	now := l.opts.now()
	b, ok := l.state.breachOf(ca, now, l.opts.SLOChanges, l.opts.Economy.Dwell)
	if !ok {
		return nil
	}
	o, known := l.observation(b.d, b.got, b.full)
	if !known {
		return l.state.say(ca, b, "no model says what its configuration should give", now)
	}
	if !b.broken {
		return l.spare(ca, b, o, now)
	}
	if b.unheard {
		return nil // until they have reported, as they do soon
	}
	if b.tries >= maxTries {
		return l.state.say(ca, b, "the last changes were not enough", now)
	}
	slow, alone := l.slowVMs(b, o.Latency)
	if len(slow) > 0 && !b.left {
		reason := fmt.Sprintf("latency is %.2f times what the model says, and most other caches there get what it says", o.Latency)
		if moved, err := l.leaveSlow(ctx, ca, b, slow, reason, now); moved || err != nil {
			return err
		}
	}
	reason := fmt.Sprintf("%v gives %v, %.2f times the model's latency and %.2f times its throughput: ", o.Config, b.got, o.Latency, o.Mops)
	var config *managerv1.Configuration
	switch {
	case alone:
		reason += "most other caches there get what the model says, which is not corrected"
	case o.Trusted():
		if err := l.correct(ca, b.d, o, now); err != nil {
			return err
		}
		reason += "the model is corrected"
		config = l.another(b, 0)
	default:
		reason += "no machine or network explains that, and the model is not corrected"
	}
	if config != nil {
		if asked, err := l.state.ask(ca, b, config, reason, false, now); asked {
			l.asked(ca, config, reason)
			return err
		} else if err != nil {
			return err
		}
	}
	if !b.left {
		if moved, err := l.leaveSlow(ctx, ca, b, b.vms, reason+", and no other configuration is known to meet the SLO", now); moved || err != nil {
			return err
		}
	}
	return l.state.say(ca, b, reason+"; no other configuration is known to meet the SLO on these VMs, and there are no others", now)
}

// correct corrects the models by what a cache gives.
func (l *leader) correct(ca *cache, d demand, o model.Observation, now time.Time) error {
	at := placeOf(d)
	learnt, err := l.search.observe(at, o, now)
	if err != nil || !learnt {
		return err
	}
	l.remember()
	l.counts.note(func(n *Metrics) { n.Corrected++ })
	l.opts.Logger.Info("model corrected", "cache", ca.id, "transport", at.Transport, "network", at.Network, "distance", at.Distance,
		"configuration", o.String(), "latency_factor", o.Latency, "throughput_factor", o.Mops)
	return nil
}

// asked counts and logs that a cache was asked for a configuration.
func (l *leader) asked(ca *cache, config *managerv1.Configuration, reason string) {
	l.counts.note(func(n *Metrics) { n.ReconfiguresAsked++ })
	l.opts.Logger.Info("cache is asked for another configuration", "cache", ca.id, "configuration", model.Config(planConfig(config)).String(), "reason", reason)
}

// another returns another configuration that meets a cache's SLO on its VMs by the corrected models;
// nil: there is none, or the manager does not choose this cache's.
func (l *leader) another(b breach, more float64) *managerv1.Configuration {
	if !b.d.chosen {
		return nil
	}
	found, err := l.search.searchWith(more, b.d.slo, b.d.transport, b.d.client)
	if err != nil {
		return nil
	}
	config := found[int(max(1, b.d.distance))]
	if config == nil {
		config = found[0]
	}
	if config == nil || proto.Equal(config, b.d.config) {
		return nil
	}
	return config
}

// spare asks a cache that has more than its SLO for a configuration with fewer threads, if one meets
// the SLO with room.
func (l *leader) spare(ca *cache, b breach, o model.Observation, now time.Time) error {
	if b.full && o.Trusted() && l.search.correctedAt(placeOf(b.d)) { // else there is nothing to confirm
		// What is better than the model in one configuration may not be in others.
		o.Latency, o.Mops = max(1, o.Latency), min(1, o.Mops)
		if err := l.correct(ca, b.d, o, now); err != nil {
			return err
		}
	}
	config := l.another(b, spareMargin)
	if config == nil || !fewer(config, b.d.config) {
		return nil
	}
	reason := fmt.Sprintf("the last %d windows kept the SLO, and %v meets it with fewer threads", spareWindows, model.Config(planConfig(config)))
	asked, err := l.state.ask(ca, b, config, reason, true, now)
	if asked {
		l.asked(ca, config, reason)
	}
	return err
}

// fewer reports whether a configuration has fewer server threads than another, or as many and fewer
// client threads.
func fewer(a, b *managerv1.Configuration) bool {
	if a.GetServerThreads() != b.GetServerThreads() {
		return a.GetServerThreads() < b.GetServerThreads()
	}
	return a.GetClientThreads() < b.GetClientThreads()
}

// slowVMs reports whether a cache that is that many times slower than the models say is alone with
// that: most of its peers are not. Then it returns the cache's VMs that it does not share with such a
// peer.
func (l *leader) slowVMs(b breach, slow float64) (vms []string, alone bool) {
	well, badly := 0, 0
	fine := make(map[string]bool)
	for _, p := range b.peers {
		o, known := l.observation(p.d, p.got, true)
		switch {
		case !known:
		case p.broken || o.Latency*likePeers > slow:
			badly++
		default:
			well++
			for _, id := range p.vms {
				fine[id] = true
			}
		}
	}
	if well <= badly {
		return nil, false
	}
	return slices.DeleteFunc(slices.Clone(b.vms), func(id string) bool { return fine[id] }), true
}

// leaveSlow asks a cache to leave VMs at any price, if there are others. It returns false if there
// are none.
func (l *leader) leaveSlow(ctx context.Context, ca *cache, b breach, slow []string, reason string, now time.Time) (bool, error) {
	s, err := l.supply(ctx, b.d.from())
	if err != nil {
		return false, err
	}
	d, avoid := b.d, make(map[string]bool)
	d.regions = b.regions
	for _, id := range b.vms {
		avoid[id] = true
	}
	if _, err := l.state.choose(d, avoid, nil, s); err != nil {
		return false, nil //nolint:nilerr // no other VMs have room
	}
	asked, err := l.state.askToLeave(ca, b, slow, reason, now)
	if asked {
		l.counts.note(func(n *Metrics) { n.MovesAsked++ })
		l.opts.Logger.Info("cache is asked to move", "cache", ca.id, "vms", strings.Join(slow, " "), "reason", reason)
	}
	return asked, err
}

// NothingDone begins the reason of an event that says that nothing is changed for a broken SLO.
const NothingDone = "nothing is done: "

// aboutSLO is the name of the verdict on what is done about an SLO.
const aboutSLO = "its SLO"

// change notes what is done about a cache's SLO. Called under mu.
func (c *state) change(ca *cache, reason string, now time.Time) {
	ca.decide("slo", &managerv1.Decision{AtUnixMs: now.UnixMilli(), Verdicts: []*managerv1.Verdict{{Name: aboutSLO, Reason: reason}}})
	c.touch(&ca.decisions)
	c.tell(ca, nil, &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_SLO_CHANGE, Reason: reason})
}

// ask asks a cache for a configuration. It returns false if the cache has changed, or its VMs have
// too few cores for it.
func (c *state) ask(ca *cache, b breach, config *managerv1.Configuration, reason string, saving bool, now time.Time) (asked bool, err error) {
	c.mu.Lock()
	defer c.end(&err)
	if ca.ended || ca.changes != b.changes {
		return false, nil
	}
	d := ca.demand
	d.config, d.per = config, d.regions
	var then []settled
	for _, g := range ca.grants {
		then = append(then, settled{grant: g, regions: g.regions, cores: d.coresFor(g.regions)})
	}
	if enoughCores(then) != nil {
		return false, nil
	}
	k := &ca.keeping
	k.wish = &wish{config: config, insteadOf: ca.demand.config, until: now.Add(wishHolds)}
	k.changes = append(k.changes, now)
	if !saving {
		k.tries++
	}
	ca.log.remove(isWish)
	c.change(ca, fmt.Sprintf("%v instead of %v: %s", model.Config(planConfig(config)), model.Config(planConfig(ca.demand.config)), reason), now)
	c.tell(ca, nil, &managerv1.WatchResponse{
		Kind: managerv1.WatchResponse_KIND_RECONFIGURE, Configuration: config, InsteadOf: ca.demand.config, Saving: saving, Reason: reason,
	})
	return true, nil
}

// askToLeave asks a cache to leave VMs at any price. It returns false if the cache has changed.
func (c *state) askToLeave(ca *cache, b breach, vms []string, reason string, now time.Time) (asked bool, err error) {
	c.mu.Lock()
	defer c.end(&err)
	if ca.ended || ca.changes != b.changes {
		return false, nil
	}
	about := slices.IndexFunc(ca.grants, func(g *grant) bool { return g.vm.id == vms[0] })
	ca.move = &move{vms: vms, urgent: true, until: now.Add(wishHolds)}
	k := &ca.keeping
	k.moving, k.left, k.changes = true, true, append(k.changes, now)
	k.tries++
	ca.log.remove(func(e event) bool { return e.message.GetKind() == managerv1.WatchResponse_KIND_VM_DEAR })
	c.change(ca, "it leaves VMs "+strings.Join(vms, " ")+": "+reason, now)
	c.tell(ca, ca.grants[about].vm, &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_DEAR, VmIds: vms, Reason: reason})
	return true, nil
}

// say notes why nothing is done about a broken SLO, once until it is kept again.
func (c *state) say(ca *cache, b breach, reason string, now time.Time) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	if ca.ended || ca.changes != b.changes || ca.keeping.told != "" || !ca.measurements.broken {
		return nil
	}
	ca.keeping.told = reason
	c.change(ca, NothingDone+reason, now)
	return nil
}
