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

// maxVMs bounds the number of VMs.
const maxVMs = 1 << 16

// state holds a manager's VMs, caches and grants in memory, and writes their changes to the
// catalog's store. Its methods are atomic and safe for concurrent use. A method that changes
// something returns when the change is stored.
type state struct {
	store   catalog.OldStore         // nil: the state is in memory only
	broken  func(error)              // called if the store fails
	learnt  func() *catalogv1.Learnt // returns the measurements to store; nil: none
	earlier *catalog.Contents        // what load found, without VMs and caches; nil: nothing
	epoch   uint64                   // of this run, in the terms of grants

	mu      sync.Mutex     // guards the fields below, VMs, caches and grants
	vms     map[string]*vm // starting, up and leaving, by id
	caches  map[string]*cache
	joined  uint64 // number of VMs that ever entered
	unsaved unsaved

	blind      bool      // see silence.go
	blindSince time.Time // start of blindness, or the last check that found no calls for a term
	renewed    time.Time // last renewal of a lease
}

// cache is one allocation. Guarded by state.mu, except id, which does not change.
//
//	Allocate ──commit──► grants ◄──settle── pending ◄──adopt── Reallocate
//
// Before commit or adopt a grant belongs to the call that reserved it, and after take or
// settle to the call that removed it; it is in no cache then.
type cache struct {
	id      string
	demand  demand        // what the cache needs
	grants  []*grant      // in the order of the cache's addresses
	pending []*grant      // given by Reallocate, and neither settled nor released yet
	given   uint64        // grants ever given
	change  uint64        // change number of the last Settle
	ready   bool          // Allocate has succeeded; other calls see the cache
	expires time.Time     // end of the lease; zero: none
	lease   time.Duration // as the client was told; 0: none
	log     eventLog

	changes uint64 // number of changes, to detect concurrent ones

	created   time.Time
	decisions []*managerv1.Decision // the latest of each kind; immutable
	moved     time.Time             // when its VMs last changed
	move      *move                 // that the cache was asked to make; nil: none
	known     knownReach
}

// grant is one loan of a VM's memory to a cache. Guarded by state.mu while a cache has it;
// id, vm, launch and warm do not change.
type grant struct {
	id      string // unique within the cache
	vm      *vm
	regions uint32
	cores   uint32
	bytes   uint64
	launch  bool // the VM was launched for it
	warm    bool // the VM was in a warm pool

	change uint64 // change number of the Reallocate that gave it; 0: none
}

var (
	errUnknownCache = errors.New("no cache")
	errUnknownVM    = errors.New("no VM")
	errLeaving      = errors.New("is about to leave")
	errStale        = errors.New("is outdated")
)

// newState returns an empty state. It calls broken if the store fails; broken must not
// block.
func newState(s catalog.OldStore, broken func(error)) *state {
	return &state{
		store: s, broken: broken, vms: make(map[string]*vm), caches: make(map[string]*cache),
		unsaved: unsaved{vms: make(map[*vm]struct{}), caches: make(map[*cache]struct{})},
	}
}

// replanTries is the maximum number of plans. mu is not held during planning, which takes
// long. If the chosen memory is no longer free when it is reserved, a new plan is made.
const replanTries = 5

// errTaken is the error after replanTries plans.
var errTaken = fmt.Errorf("%w: concurrent calls took the chosen memory each time", menu.ErrSoldOut)

// reserve chooses VMs for a new cache and reserves their memory. VMs to launch enter the
// state as starting, with ids from newID. Other calls do not see the cache until commit;
// take, byVM and free undo reserve.
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

// look returns the VMs and offers from which a new cache can choose.
func (c *state) look(d demand, s supply) ([]candidate, supply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool(nil, s.now), c.withWarm(s, d.transport, false)
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
		if c.vms[v.id] != v || v.usable() != nil || v.memory-v.reserved < bytes[v] || v.Cores-min(v.Cores, v.threads) < cores[v] {
			return false
		}
	}
	return true
}

// reserveAs reserves the chosen memory for a new cache. It returns nil if it is no longer
// free.
func (c *state) reserveAs(id string, d demand, p placement, s supply, newID func() string) (_ *cache, err error) {
	c.mu.Lock()
	defer c.end(&err)
	if !c.stillFree(p, d) {
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

// lend reserves the memory of parts and returns grants of it. Called under mu.
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

// ordered returns the properties of a VM that is to be launched.
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

// freshFor is the time during which a newly registered server is chosen after the others.
const freshFor = 30 * time.Second

// pool lists the usable registered servers except those to avoid, oldest first. Called
// under mu.
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
		// If all servers are new, none is fresh.
		pool[i].fresh = fresh(c) && !fresh(pool[0])
	}
	return pool
}

// await waits until a launched VM has registered or failed.
func (c *state) await(ctx context.Context, v *vm) error {
	select {
	case <-v.up:
	case <-ctx.Done():
		select {
		case <-v.up: // takes precedence
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

// usable reports why grants must not be given to a client. Called under mu.
func usable(grants []*grant) error {
	for _, s := range grants {
		if err := s.vm.usable(); err != nil {
			return err
		}
	}
	return nil
}

// commit makes a cache visible, unless one of its VMs has become unusable.
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
		CacheId: p.Id, Grants: c.withTokens(ca, p.Grants, ca.grants), Configuration: p.Configuration, RegionSize: p.RegionSize,
		LeaseMs: ca.lease.Milliseconds(),
	}, nil
}

// take removes a ready cache, or only if it is not nil, tells its watchers the reason, and
// returns its grants. Their memory stays reserved until free, as the server still lends it.
// The error is errUnknownCache.
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

// vmGrants is a VM with grants to release.
type vmGrants struct {
	vm        *vm
	info      node.VM // of it
	grants    []*grant
	ids       []string
	terminate bool // the VM was launched, and has no other grants
	failed    bool
}

// byVM groups removed grants by VM, for their release.
func (c *state) byVM(grants []*grant) []vmGrants {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []vmGrants
	at := make(map[*vm]int)
	for _, s := range grants {
		i, ok := at[s.vm]
		if !ok {
			i, at[s.vm] = len(all), len(all)
			all = append(all, vmGrants{vm: s.vm, info: s.vm.VM})
		}
		all[i].grants, all[i].ids = append(all[i].grants, s), append(all[i].ids, s.id)
		s.vm.grants--
	}
	for i, p := range all {
		// Nobody can use another grant of a failed VM.
		all[i].failed = p.vm.failed != ""
		all[i].terminate = p.vm.launched && (p.vm.grants == 0 || all[i].failed)
	}
	return all
}

// free ends the reservation of released grants. If the store fails, a restart frees them
// again.
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

// watched returns a ready cache.
func (c *state) watched(id string) (*cache, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca := c.caches[id]
	return ca, ca != nil && ca.ready
}

// known is watched with an error. Called under mu.
func (c *state) known(id string) (*cache, error) {
	ca := c.caches[id]
	if ca == nil || !ca.ready {
		return nil, noCache(id)
	}
	return ca, nil
}

func noCache(id string) error { return fmt.Errorf("%w %.40q", errUnknownCache, id) }

// eventsAfter returns the events of a cache with numbers above sequence, or one event with
// the cache's state if not all of them are kept, and a channel that is closed when there are
// more. LeftMs of events is relative to now.
func (c *state) eventsAfter(ca *cache, sequence uint64, now time.Time) ([]*managerv1.WatchResponse, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ca.log.complete(sequence) || c.caches[ca.id] != ca { // a deleted cache's last event is enough
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

// all lists the grants of a cache, the pending ones last. Called under mu.
func (ca *cache) all() []*grant { return slices.Concat(ca.grants, ca.pending) }

// holds reports whether a cache has a grant on a VM. Called under mu.
func (ca *cache) holds(v *vm) bool {
	return slices.ContainsFunc(ca.all(), func(s *grant) bool { return s.vm == v })
}
