package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
)

// maxVMs bounds how many servers may be registered at a time.
const maxVMs = 1 << 16

// state is what a manager knows: VMs, caches, and which lends what to which.
// Its methods are atomic and safe for concurrent use. Those that change something
// return when the store has it.
type state struct {
	store   catalog.Store            // nil: what is known ends with the process
	broken  func(error)              // is told if the store fails
	learnt  func() *catalogv1.Learnt // that is stored with the rest; nil: nothing
	earlier *catalog.Contents        // what load found, without VMs and caches; nil: nothing

	mu      sync.Mutex
	vms     map[string]*vm // starting, up and leaving, by id
	caches  map[string]*cache
	joined  uint64 // VMs that ever entered: their order
	unsaved unsaved

	blind      bool      // see sight.go
	blindSince time.Time // its start, or the last check before which no call came for a term
	renewed    time.Time // last renewal of a lease
}

// cache is one allocation. Guarded by state.mu; id does not change.
//
//	Allocate ──commit──► grants ◄──settle── pending ◄──adopt── Reallocate
//
// A grant belongs to the call that reserved it until commit or adopt, and to the
// one that took it out from take or settle on: such a grant is in no cache.
type cache struct {
	id      string
	demand  demand        // what grants are for
	grants  []*grant      // in the order of the cache's addresses
	pending []*grant      // reallocated, and neither settled nor released yet
	given   uint64        // grants ever given
	change  uint64        // the client's number of the Settle that came last
	ready   bool          // Allocate has succeeded: visible to everybody
	expires time.Time     // unless renewed before; zero: never
	lease   time.Duration // that the client was told; 0: none
	log     eventLog

	changes uint64 // how often it was touched

	created   time.Time
	decisions []*managerv1.Decision // the latest of each kind; immutable once there
	moved     time.Time             // when its VMs last changed
	move      *move                 // that it was told to make; nil: none
	known     knownReach
}

// grant is the part of a cache that one VM holds under one grant. Guarded by
// state.mu while a cache has it; grant, vm, launch and warm do not change.
type grant struct {
	id      string
	vm      *vm
	regions uint32
	cores   uint32
	bytes   uint64
	launch  bool // the VM is launched for it
	warm    bool // the VM was in a warm pool before

	change uint64 // the client's number of the Reallocate that gave it; 0: none
}

var (
	errUnknownCache = errors.New("no cache")
	errUnknownVM    = errors.New("no VM")
	errLeaving      = errors.New("is about to leave")
	errStale        = errors.New("came too late")
)

// newState returns an empty catalog. broken is told, once the store has failed,
// that no change will be kept any more; it must not block.
func newState(s catalog.Store, broken func(error)) *state {
	return &state{
		store: s, broken: broken, vms: make(map[string]*vm), caches: make(map[string]*cache),
		unsaved: unsaved{vms: make(map[*vm]struct{}), caches: make(map[*cache]struct{})},
	}
}

// Planning may take long, so that mu is not held meanwhile: what was chosen is looked
// at again before it is reserved. If it is not there any more the plan is made anew,
// replanTries times.
const replanTries = 5

// errTaken is what the last of them ends with.
var errTaken = fmt.Errorf("%w: others were faster, again and again", menu.ErrSoldOut)

// reserve places a cache and reserves what it takes. VMs that have to be
// launched for it enter as starting, with ids from newID. The cache is unseen
// until commit; take, part and free undo it.
func (c *state) reserve(id string, d demand, s supply, newID func() string) (*cache, error) {
	for range replanTries {
		pool, now := c.look(d, s)
		p, err := place(d, nil, pool, now)
		if err != nil {
			return nil, err
		}
		if ca, err := c.reserveAs(id, d, p, s, newID); ca != nil || err != nil {
			return ca, err
		}
	}
	return nil, errTaken
}

// look is what a new cache can choose from.
func (c *state) look(d demand, s supply) ([]candidate, supply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool(nil, s.now), c.withWarm(s, d.transport, false)
}

// there says whether what was chosen can be had. Called under mu.
func (c *state) there(p placement, d demand) bool {
	bytes, cores := make(map[*vm]uint64), make(map[*vm]uint32)
	for _, part := range p.parts {
		v := part.vm
		if v == nil {
			continue // it is bought later
		}
		bytes[v] += uint64(part.regions) * d.regionSize
		cores[v] += part.cores
		if c.vms[v.id] != v || v.usable() != nil || v.memory-v.reserved < bytes[v] || v.Cores-min(v.Cores, v.threads) < cores[v] {
			return false
		}
	}
	return true
}

// reserveAs reserves what was chosen for a new cache. It returns none where that is
// not to be had any more.
func (c *state) reserveAs(id string, d demand, p placement, s supply, newID func() string) (_ *cache, err error) {
	c.mu.Lock()
	defer c.end(&err)
	if !c.there(p, d) {
		return nil, nil
	}
	d.config, d.distance, d.configs, d.shrinks = p.config, p.distance, nil, false
	ca := &cache{id: id, demand: d, log: newEventLog(), created: s.now, moved: s.now}
	ca.decide("allocate", p.decision)
	ca.grants = c.lend(ca, d, p.parts, newID)
	c.caches[id] = ca
	c.touchCache(ca)
	return ca, nil
}

// lend reserves what the parts take. Called under mu.
func (c *state) lend(ca *cache, d demand, parts []part, newID func() string) []*grant {
	var grants []*grant
	for _, p := range parts {
		ca.given++
		s := &grant{
			id: "g" + strconv.FormatUint(ca.given, 10), vm: p.vm, launch: p.vm == nil, warm: p.warm,
			regions: p.regions, cores: p.cores, bytes: uint64(p.regions) * d.regionSize,
		}
		if s.launch {
			s.vm = c.enter(&vm{id: newID(), launched: true, VM: ordered(p.offer, d.cloudRegion)})
		}
		s.vm.grants++
		s.vm.reserved += s.bytes
		s.vm.threads += s.cores
		grants = append(grants, s)
	}
	return grants
}

// ordered is what is known of a VM before it is launched.
func ordered(o plan.Offer, region string) node.VM {
	v := node.VM{
		Memory: o.Memory, Cores: uint32(o.Cores), Distance: uint32(o.Distance), Spot: o.Spot, Price: o.Price,
		Notice: o.Notice, CloudRegion: region,
	}
	if !o.Fitted {
		v.Type = o.Type
	}
	return v
}

// freshFor is how long a server counts as one that has joined only now, while there
// are others.
const freshFor = 30 * time.Second

// pool lists the servers that caches may share, oldest first, without those to
// avoid. Called under mu.
func (c *state) pool(avoid map[string]bool, now time.Time) []candidate {
	var pool []candidate
	for _, v := range c.vms {
		if !v.launched && v.usable() == nil && !avoid[v.id] {
			pool = append(pool, v.candidate())
		}
	}
	slices.SortFunc(pool, func(a, b candidate) int { return cmp.Compare(a.vm.order, b.vm.order) })
	fresh := func(c candidate) bool { return now.Sub(c.vm.Started) < freshFor }
	for i, c := range pool {
		// Where all have joined only now, none stands out.
		pool[i].fresh = fresh(c) && !fresh(pool[0])
	}
	return pool
}

// await returns when a launched VM has registered, or why it never will.
func (c *state) await(ctx context.Context, v *vm) error {
	select {
	case <-v.up:
	case <-ctx.Done():
		select {
		case <-v.up: // as well: what it says comes first
		default:
			return fmt.Errorf("VM %s has not registered: %w", v.id, context.Cause(ctx))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.failed != "" {
		return fmt.Errorf("VM %s: %s", v.id, v.failed)
	}
	return nil
}

// usable says why a grant must not be handed out. Called under mu.
func usable(grants []*grant) error {
	for _, s := range grants {
		if err := s.vm.usable(); err != nil {
			return err
		}
	}
	return nil
}

// commit makes a cache visible, unless one of its VMs has failed or is leaving
// meanwhile.
func (c *state) commit(ca *cache, t term) (_ *managerv1.AllocateResponse, err error) {
	c.mu.Lock()
	defer c.end(&err)
	if err := usable(ca.grants); err != nil {
		return nil, err
	}
	ca.ready = true
	ca.begin(t)
	c.touchCache(ca)
	p := ca.priced(ca.proto())
	return &managerv1.AllocateResponse{
		CacheId: p.Id, Grants: ca.withTokens(p.Grants, ca.grants), Configuration: p.Configuration, RegionSize: p.RegionSize,
		LeaseMs: ca.lease.Milliseconds(),
	}, nil
}

// take removes a cache that is ready, or any if it is given, tells its watchers
// why, and returns what it held. That stays reserved until free, so that nobody
// is given memory that a server has not got back. The error is errUnknownCache
// where there is no such cache, or it was taken before.
func (c *state) take(id string, only *cache, reason string) (_ []*grant, err error) {
	c.mu.Lock()
	defer c.end(&err)
	ca := c.caches[id]
	if ca == nil || only == nil && !ca.ready || only != nil && only != ca {
		return nil, noCache(id)
	}
	return c.takeOut(ca, reason), nil
}

// takeOut is called under mu.
func (c *state) takeOut(ca *cache, reason string) []*grant {
	delete(c.caches, ca.id)
	c.touchCache(ca)
	ca.log.append(nil, &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_CACHE_DELETED, Reason: reason})
	return ca.all()
}

// parting is a VM on which grants end.
type parting struct {
	vm        *vm
	info      node.VM // of it
	grants    []*grant
	ids       []string
	terminate bool // it was launched, and serves nothing else
	failed    bool
}

// part says what has to be done about VMs so that grants, which no cache has any
// more, can be freed.
func (c *state) part(grants []*grant) []parting {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []parting
	at := make(map[*vm]int)
	for _, s := range grants {
		i, ok := at[s.vm]
		if !ok {
			i, at[s.vm] = len(all), len(all)
			all = append(all, parting{vm: s.vm, info: s.vm.VM})
		}
		all[i].grants, all[i].ids = append(all[i].grants, s), append(all[i].ids, s.id)
		s.vm.grants--
	}
	for i, p := range all {
		// What is left of a failed VM holds no grant that anybody could use.
		all[i].failed = p.vm.failed != ""
		all[i].terminate = p.vm.launched && (p.vm.grants == 0 || all[i].failed)
	}
	return all
}

// free gives back what grants held that have parted. Should the store fail, a
// restart frees them once more.
func (c *state) free(grants []*grant) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	for _, s := range grants {
		s.vm.reserved -= s.bytes
		s.vm.threads -= s.cores
		if s.vm.launched && s.vm.grants == 0 && c.vms[s.vm.id] == s.vm {
			delete(c.vms, s.vm.id)
			c.touchVM(s.vm)
		}
	}
	return nil
}

// size counts caches and VMs.
func (c *state) size() (caches, vms int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.caches), len(c.vms)
}

// watched returns the cache that a watcher may follow.
func (c *state) watched(id string) (*cache, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca := c.caches[id]
	return ca, ca != nil && ca.ready
}

// known is watched under mu, with an error.
func (c *state) known(id string) (*cache, error) {
	ca := c.caches[id]
	if ca == nil || !ca.ready {
		return nil, noCache(id)
	}
	return ca, nil
}

func noCache(id string) error { return fmt.Errorf("%w %.40q", errUnknownCache, id) }

// eventsAfter returns the events of a cache that are numbered above sequence, or
// its state where these are not all kept, and a channel that is closed when there
// are more. The time that is left of a VM's notice counts from now.
func (c *state) eventsAfter(ca *cache, sequence uint64, now time.Time) ([]*managerv1.WatchResponse, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ca.log.complete(sequence) || c.caches[ca.id] != ca { // the end says all
		return ca.log.after(sequence, now), ca.log.changed
	}
	state := ca.whole()
	for i, s := range ca.all() {
		state.Grants[i].Vm.LeftMs = s.vm.left(now)
	}
	return []*managerv1.WatchResponse{{
		Kind: managerv1.WatchResponse_KIND_STATE, Sequence: ca.log.last, State: state,
	}}, ca.log.changed
}

// all lists the grants of a cache, and the pending ones. Called under mu.
func (ca *cache) all() []*grant { return slices.Concat(ca.grants, ca.pending) }

// holds says whether a cache has a grant on a VM. Called under mu.
func (ca *cache) holds(v *vm) bool {
	return slices.ContainsFunc(ca.all(), func(s *grant) bool { return s.vm == v })
}
