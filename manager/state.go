package manager

import (
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/plan"
)

// maxVMs bounds the number of VMs.
const maxVMs = 1 << 16

// state holds a leader's VMs, caches and grants in memory; the catalog has their records. Its
// methods are atomic and safe for concurrent use. A method that changes something returns
// when the change is written. mu is held for memory only: no disk, no network and no planner
// is waited for under it.
type state struct {
	writer *writer
	work   func(key string) // queues a key for the reconcilers

	mu        sync.Mutex     // guards the fields below, VMs, caches and grants
	vms       map[string]*vm // starting, up and leaving, by id
	caches    map[string]*cache
	grants    map[string]*grant   // lent and leaving, by key
	orders    map[uint64]*vm      // all VMs, by order: those of vms, and failed ones with grants
	warms     map[*vm]struct{}    // those of vms that are of a warm pool
	reclaimed map[*vm]struct{}    // those of vms that are taken back
	asked     map[string]*cache   // caches by id of the request
	ended     map[string]*past    // ended caches by id of the request
	past      []*past             // those of ended, in the order of at
	due       map[*cache]struct{} // that the keeper has to consider
	pool      *plan.Pool          // usable servers that registered themselves
	joined    uint64              // number of VMs that ever entered

	// Of the change that is being made: see end.
	touched []record
	after   []func()
	txns    uint64 // number of the last one

	setting single
	learnt  single
	watch   SLOWatch

	blind      bool      // see silence.go
	blindSince time.Time // start of blindness, or the last check that found no calls for a term
	renewed    time.Time // last renewal of a lease

	braked      bool // see alive.go
	brakedSince time.Time

	requests uint64                  // number of requests that ever began
	soldOut  map[menu.Kind]time.Time // end of the time for which a kind counts as sold out: see giveway.go
	backoffs map[menu.Kind]*backoff  // see backoff.go
}

var (
	errUnknownCache = errors.New("no cache")
	errUnknownVM    = errors.New("no VM")
	errLeaving      = errors.New("is about to leave")
	errStale        = errors.New("is outdated")
	errTooFar       = errors.New("is too far away")
	errEnded        = errors.New("has ended")
	errOlder        = errors.New("is known in an older state")
)

// newState returns an empty state of a term.
func newState(w *writer, work func(key string)) *state {
	return &state{
		writer: w, work: work, vms: make(map[string]*vm), caches: make(map[string]*cache), grants: make(map[string]*grant),
		orders: make(map[uint64]*vm), warms: make(map[*vm]struct{}), reclaimed: make(map[*vm]struct{}), asked: make(map[string]*cache), ended: make(map[string]*past), due: make(map[*cache]struct{}), soldOut: make(map[menu.Kind]time.Time),
		backoffs: make(map[menu.Kind]*backoff), pool: plan.NewPool(freshFor),
	}
}

// pieces iterates over a map of the state under mu. It releases mu between some of the values,
// so that no call waits for a long loop: what is added meanwhile may not be seen. The caller
// has not touched a record.
func pieces[K comparable, V any](c *state, m map[K]V) iter.Seq[V] {
	const size = 256
	return func(yield func(V) bool) {
		n := 0
		for _, v := range m {
			if !yield(v) {
				return
			}
			if n++; n%size == 0 {
				c.mu.Unlock()
				c.mu.Lock()
			}
		}
	}
}

// touch notes that a record has changed. Called under mu, which end releases.
func (c *state) touch(r record) {
	if m := r.meta(); !m.dirty {
		m.dirty = true
		c.touched = append(c.touched, r)
	}
	if ca, ok := r.(*cache); ok {
		ca.changes++
	}
}

// then calls do when the present change is written, or at once if it changes no record.
// Called under mu; do is called without it.
func (c *state) then(do func()) { c.after = append(c.after, do) }

// queue queues a key for the reconcilers when the present change is written. Called under mu.
func (c *state) queue(key string) { c.then(func() { c.work(key) }) }

// end releases mu and returns when what the call has changed is written. It sets err if that
// fails and the call has not failed.
func (c *state) end(err *error) {
	t, e := c.flush()
	c.mu.Unlock()
	if t != nil {
		e = errors.Join(e, c.writer.wait(t))
	}
	if e != nil && *err == nil {
		*err = e
	}
}

// flush queues the present change to be written; nil: there is nothing to wait for. Called
// under mu.
func (c *state) flush() (*txn, error) {
	if len(c.touched)+len(c.after) == 0 {
		return nil, nil
	}
	c.txns++
	t := &txn{number: c.txns, after: c.after}
	var errs []error
	for _, r := range c.touched {
		r.meta().dirty = false
		value, err := r.encode()
		if err != nil { // what there is of it could not be read again
			errs = append(errs, fmt.Errorf("%s: %w", r.key(), err))
			continue
		}
		t.changes = append(t.changes, change{of: r.meta(), key: r.key(), value: value})
		if ca, ok := r.(*cache); ok {
			ca.txn = c.txns
		}
	}
	waits := len(c.touched) > 0
	c.touched, c.after = nil, nil
	c.writer.add(t)
	if !waits {
		t = nil
	}
	return t, errors.Join(errs...)
}

// written waits until all changes that were made so far are written, and until it is known that the
// term goes on, for a call that answers what an earlier one has changed.
func (c *state) written() error {
	c.mu.Lock()
	t := c.confirm()
	c.mu.Unlock()
	return c.writer.wait(t)
}

// confirm queues a txn without changes that asks whether the term goes on. Called under mu.
func (c *state) confirm() *txn {
	t := &txn{number: c.txns, confirms: true}
	c.writer.add(t)
	return t
}

// put writes records in one transaction.
func (c *state) put(all ...record) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	for _, r := range all {
		c.touch(r)
	}
	return nil
}

// look returns the offers from which a new cache can choose.
func (c *state) look(d demand, s supply) supply {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.withWarm(s, d.transport, false)
}

// stillFree reports whether the chosen memory is free. Called under mu.
func (c *state) stillFree(p placement, d demand) bool {
	bytes, cores := make(map[*vm]uint64), make(map[*vm]uint32)
	for _, part := range p.parts {
		v := part.vm
		if v == nil {
			continue // it is launched later
		}
		bytes[v] += uint64(part.regions) * d.regionSize
		cores[v] += part.cores
		if c.vms[v.id] != v || v.usable() != nil || v.free() < bytes[v] || v.Cores-min(v.Cores, v.threads) < cores[v] {
			return false
		}
	}
	return true
}

// freshFor is the time during which a newly registered server is chosen after the others.
const freshFor = 30 * time.Second

// list updates a server in the pool of those from which caches can choose. It is called
// under mu after each change of a VM that matters to a plan.
func (c *state) list(v *vm) {
	switch has := c.vms[v.id]; {
	case v.launched || has != nil && has != v: // it is no server of the pool, or an earlier incarnation
	case has == nil || v.ControlURL == "" || v.usable() != nil:
		c.pool.Remove(v.id)
	default:
		err := c.pool.Put(plan.Server{
			ID: v.id, Transport: v.Transport, Free: v.free(), Memory: max(v.Memory, v.memory),
			Cores: int(v.Cores - min(v.Cores, v.threads)), Distance: int(v.Distance), Price: v.Price,
		}, v.order, v.Started)
		if err != nil { // which Register has checked
			c.pool.Remove(v.id)
		}
	}
}

// size counts caches and VMs.
func (c *state) size() (caches, vms int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.caches), len(c.vms)
}

// loader restores the state from the records of a catalog.
type loader struct {
	*contents
	c        *state
	now      time.Time
	deadline time.Time // of heartbeats
}

// load restores a new state from the catalog's records. Every cache begins a new lease, by
// extend, and a new dwell, and every server that is to send heartbeats has to send one soon.
// Watchers get a cache's whole state first. base is above the sequence number of any event of
// an earlier leader.
//
// What an earlier leader had begun and not finished is level: a grant that no cache names is
// leaving, and a launched VM without grants is terminated or warm.
func (c *state) load(all *contents, t term, deadline time.Time, base uint64) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	l := loader{contents: all, c: c, now: t.now(), deadline: deadline}
	for _, p := range all.vms {
		if err := l.vm(p); err != nil {
			return fmt.Errorf("%w: VM %.40q: %w", catalog.ErrCorrupt, p.GetVm().GetId(), err)
		}
	}
	for _, p := range all.grants {
		if err := l.grant(p); err != nil {
			return fmt.Errorf("%w: grant %.40q of cache %.40q: %w", catalog.ErrCorrupt, p.GetId(), p.GetCacheId(), err)
		}
	}
	for _, p := range all.caches {
		if p.GetEnded() { // its time begins anew: clocks differ
			ended := &past{stored: new(stored), cache: p.GetId(), requestID: p.GetRequestId(), at: l.now}
			ended.version = all.versions[ended.key()]
			c.remember(ended)
			continue
		}
		ca, err := l.cache(p)
		if err != nil {
			return fmt.Errorf("%w: cache %.40q: %w", catalog.ErrCorrupt, p.GetId(), err)
		}
		ca.log.last, ca.log.dropped = base, base
		if ca.lingers.IsZero() { // else its client has had its lease
			ca.extend(t)
		} else {
			ca.expires = l.now
		}
	}
	for _, g := range c.grants {
		g.vm.hold(g)
		if g.phase != leaving {
			if g.lends > g.regions {
				c.queue(g.key())
			}
			continue
		}
		c.queue(g.key())
		// A leader may have ended between the records of a grant and of its cache. The cache
		// gives no other grant that id.
		if ca, number := c.caches[g.cache], grantNumber(g.id); ca != nil && ca.given < number {
			ca.given = number
			c.touch(ca)
		}
	}
	for _, v := range c.orders {
		c.list(v)
		c.queue(v.key())
	}
	for id := range all.decisions {
		if c.caches[id] == nil { // it is deleted
			d := &decisions{of: &cache{id: id, ended: true}}
			d.version = all.versions[d.key()]
			c.touch(d)
		}
	}
	return nil
}

func (l *loader) vm(p *catalogv1.Vm) error {
	v := vmFrom(p)
	v.version = l.versions[v.key()]
	if p.GetBeats() {
		v.deadline = l.deadline
	}
	l.c.orders[v.order] = v
	l.c.joined = max(l.c.joined, v.order)
	if v.failed == "" {
		if l.c.vms[v.id] != nil {
			return errors.New("it has two records")
		}
		l.c.vms[v.id] = v
		l.c.setWarm(v, v.warm)
		if !v.leaves.IsZero() {
			// The earlier leader's clock may have been ahead of this one. How much of the
			// notice has passed between the two leaders, only the clocks tell.
			if latest := l.now.Add(v.notice); v.leaves.After(latest) {
				v.leaves = latest
				l.c.touch(v) // so that the next leader does not begin the notice anew
			}
			l.c.reclaimed[v] = struct{}{}
		}
	}
	if v.ControlURL == "" {
		v.entered = time.Now()
	}
	return nil
}

func (l *loader) grant(p *catalogv1.Grant) error {
	g := &grant{
		id: p.GetId(), cache: p.GetCacheId(), vm: l.c.orders[p.GetVmOrder()], regions: p.GetRegions(), lends: p.GetRegions(), regionSize: p.GetRegionSize(),
		cores: p.GetCores(), launch: p.GetLaunch(), change: p.GetChange(), phase: leaving, freed: make(chan struct{}),
	}
	if g.vm == nil || g.regions < 1 || g.regions > maxRegions || g.regionSize < minRegionSize || g.regionSize > maxRegionSize {
		return fmt.Errorf("%d regions of %d bytes of VM %d", g.regions, g.regionSize, p.GetVmOrder())
	}
	g.version = l.versions[g.key()]
	l.c.grants[g.key()] = g
	return nil
}

func (l *loader) cache(p *catalogv1.Cache) (*cache, error) {
	ca := &cache{
		stored: new(stored), id: p.GetId(), owner: p.GetOwner(), demand: demandFrom(p.GetDemand()), given: p.GetGiven(), ready: true, log: newEventLog(),
		created: api.FromMillis(p.GetCreatedUnixMs()), change: p.GetSettled(), lease: time.Duration(p.GetLeaseMs()) * time.Millisecond, moved: l.now,
		requestID: p.GetRequestId(), requestSum: p.GetRequestSum(), last: p.GetLast(),
		linger: time.Duration(p.GetLingerMs()) * time.Millisecond, holder: p.GetHolder(), attachID: p.GetAttachId(),
		places: p.GetPlaces(), moving: p.GetMoving(), adopted: p.GetAdopted(),
	}
	ca.demand.source = ca.source()
	ca.lingers = l.lingers(ca, p.GetLingersUnixMs())
	if err := ca.demand.checkStored(); err != nil {
		return nil, err
	}
	var err error
	if ca.grants, err = l.held(ca, p.GetGrants()); err != nil {
		return nil, err
	}
	if ca.pending, err = l.held(ca, p.GetPending()); err != nil {
		return nil, err
	}
	ca.version = l.versions[ca.key()]
	ca.decisions = decisions{of: ca, p: l.decisions[ca.id]}
	ca.decisions.version = l.versions[ca.decisions.key()]
	l.c.caches[ca.id] = ca
	l.c.asked[ca.requestID] = ca
	return ca, nil
}

// held returns the grants that a cache names, with its values.
func (l *loader) held(ca *cache, named []*catalogv1.Held) ([]*grant, error) {
	var all []*grant
	for _, n := range named {
		g := l.c.grants[grantKey(ca.id, n.GetId())]
		if g == nil || g.phase != leaving || n.GetRegions() < 1 || n.GetRegions() > g.regions || g.regionSize != ca.demand.regionSize {
			return nil, fmt.Errorf("it names %d regions of grant %.40q, which is unknown, smaller, or named twice", n.GetRegions(), n.GetId())
		}
		g.phase, g.regions, g.cores = lent, n.GetRegions(), n.GetCores()
		all = append(all, g)
	}
	return all, nil
}

// launchedIDs lists the VMs that an allocator has launched and that have not failed: those of caches,
// and those that none has.
func (c *state) launchedIDs() (lent, idle []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, v := range c.vms {
		switch {
		case !v.launched:
		case v.lent > 0:
			lent = append(lent, id)
		default:
			idle = append(idle, id)
		}
	}
	return lent, idle
}

// usable reports why grants must not be given to a client. Called under mu.
func usable(grants []*grant) error {
	for _, g := range grants {
		if err := g.vm.usable(); err != nil {
			return err
		}
	}
	return nil
}
