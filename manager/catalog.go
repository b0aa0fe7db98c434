package manager

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
)

// maxVMs bounds how many servers may be registered at a time.
const maxVMs = 1 << 16

// catalog is what a manager knows: VMs, caches, and which lends what to which.
// Its methods are atomic, do no I/O, and are safe for concurrent use.
//
// The states of a VM:
//
//	launched by the allocator      registered by itself
//	  starting ──register──► up ◄──register──
//	     └─────fail──► failed ◄──fail──┘
//
// Only servers that registered by themselves are in the pool. A failed VM leaves
// vms at once and lives on in the shares of the caches that it failed.
type catalog struct {
	mu     sync.Mutex
	vms    map[string]*vm // starting and up, by id
	caches map[string]*cache
	joined uint64 // VMs that ever entered: their order
}

// vm is one incarnation of a VM. id, launched and up do not change; the rest is
// guarded by catalog.mu, but the VM within is not written again once it is up.
type vm struct {
	VM       // zero while starting
	id       string
	order    uint64        // of entering the catalog
	launched bool          // by the allocator, for one cache
	failed   string        // why; empty while it has not
	up       chan struct{} // closed when the VM has registered or failed

	memory   uint64    // bytes that can be lent
	reserved uint64    // bytes promised to caches
	threads  uint32    // server threads promised to caches
	deadline time.Time // of the next heartbeat; zero: none is expected
}

// cache is one allocation. Guarded by catalog.mu; id, demand and shares do not
// change once it is published.
type cache struct {
	id     string
	demand demand
	shares []share
	ready  bool // Allocate has succeeded: visible to everybody
	log    eventLog
}

// share is the part of a cache that one VM holds.
type share struct {
	vm      *vm
	regions uint32
	cores   uint32
	bytes   uint64
}

func newCatalog() *catalog {
	return &catalog{vms: make(map[string]*vm), caches: make(map[string]*cache)}
}

// reserve places a cache and reserves what it takes. VMs that have to be
// launched for it enter as starting, with ids from newID. The cache is unseen
// until commit; take and free undo it.
func (c *catalog) reserve(id string, d demand, l launcher, newID func() string) (*cache, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	parts, err := place(d, c.pool(), l)
	if err != nil {
		return nil, err
	}
	ca := &cache{id: id, demand: d, log: newEventLog()}
	for _, p := range parts {
		if p.vm == nil {
			p.vm = c.enter(&vm{id: newID(), launched: true})
		}
		s := share{vm: p.vm, regions: p.regions, cores: p.cores, bytes: uint64(p.regions) * d.regionSize}
		s.vm.reserved += s.bytes
		s.vm.threads += s.cores
		ca.shares = append(ca.shares, s)
	}
	c.caches[id] = ca
	return ca, nil
}

// enter adds a VM. Called under mu.
func (c *catalog) enter(v *vm) *vm {
	c.joined++
	v.order = c.joined
	v.up = make(chan struct{})
	c.vms[v.id] = v
	return v
}

// pool lists the servers that caches may share, oldest first. Called under mu.
func (c *catalog) pool() []candidate {
	var pool []candidate
	for _, v := range c.vms {
		if !v.launched {
			pool = append(pool, candidate{vm: v, transport: v.Transport, free: v.memory - v.reserved, cores: v.Cores - min(v.Cores, v.threads)})
		}
	}
	slices.SortFunc(pool, func(a, b candidate) int { return cmp.Compare(a.vm.order, b.vm.order) })
	return pool
}

// await returns when a launched VM has registered, or why it never will.
func (c *catalog) await(ctx context.Context, v *vm) error {
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

// commit makes a cache visible, unless one of its VMs has failed meanwhile.
func (c *catalog) commit(ca *cache) (*managerv1.AllocateResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range ca.shares {
		if s.vm.failed != "" {
			return nil, fmt.Errorf("VM %s: %s", s.vm.id, s.vm.failed)
		}
	}
	ca.ready = true
	p := ca.proto()
	return &managerv1.AllocateResponse{CacheId: p.Id, Shares: p.Shares, Configuration: p.Configuration, RegionSize: p.RegionSize}, nil
}

// take removes a cache and tells its watchers. What it held stays reserved until
// free, so that nobody is given memory that a server has not got back. It
// returns false where the cache is unknown or was taken before.
func (c *catalog) take(id string) (*cache, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca := c.caches[id]
	if ca == nil {
		return nil, false
	}
	delete(c.caches, id)
	ca.log.append(&managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_CACHE_DELETED, Reason: "deallocated"})
	return ca, true
}

// free gives back what a taken cache held.
func (c *catalog) free(ca *cache) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range ca.shares {
		s.vm.reserved -= s.bytes
		s.vm.threads -= s.cores
		if s.vm.launched && c.vms[s.vm.id] == s.vm {
			delete(c.vms, s.vm.id)
		}
	}
}

// launchedPrefix begins the ids of launched VMs, and of no others: one that was
// given up cannot come back as a server that registered itself.
const launchedPrefix = "vm-"

// register makes a VM usable. A server may say the same twice, for it does not
// know whether it was heard; any other that is up already under this id is an
// earlier incarnation, and failed.
func (c *catalog) register(info VM, deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.vms[info.ID]
	switch {
	case v == nil && strings.HasPrefix(info.ID, launchedPrefix):
		return fmt.Errorf("VM %s was launched for a cache that is gone", info.ID)
	case v != nil && v.ControlURL != "" && v.launched:
		if v.ControlURL != info.ControlURL {
			return fmt.Errorf("VM %s is registered already, at %s", info.ID, v.ControlURL)
		}
		return nil
	case v != nil && v.ControlURL != "" && v.repeats(info):
		v.deadline = deadline
		return nil
	case v != nil && v.ControlURL != "":
		c.failVM(v, "its server was started again")
		v = nil
	}
	if v == nil {
		if len(c.vms) >= maxVMs {
			return &CapacityError{What: "catalog: number of VMs", Asked: maxVMs + 1, Available: maxVMs}
		}
		v = c.enter(&vm{id: info.ID})
	}
	if info.Free < v.reserved {
		return fmt.Errorf("VM %s lends %v, less than the %v that it was launched for", v.id, units.Size(info.Free), units.Size(v.reserved))
	}
	v.VM, v.memory, v.deadline = info, info.Free, deadline
	close(v.up)
	return nil
}

// repeats says whether a server that registers is the one that is up already. A
// new process may have the addresses of the old one, but has lent nothing yet;
// where caches were promised memory, that tells the two apart. Called under mu.
func (v *vm) repeats(info VM) bool {
	fresh := info.Free == info.Memory
	info.Free = v.Free
	return info == v.VM && (v.reserved == 0 || !fresh)
}

// heartbeat postpones a VM's deadline. It returns false where no such VM is up.
func (c *catalog) heartbeat(id string, free uint64, deadline time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.vms[id]
	if v == nil || v.ControlURL == "" {
		return false
	}
	if !v.deadline.IsZero() {
		v.deadline = deadline
	}
	// A server that registered while caches of an earlier manager still held
	// part of it can lend more once they have left.
	if free = min(free, v.Memory); v.reserved == 0 && free > v.memory {
		v.memory = free
	}
	return true
}

// fail takes a VM out and tells the watchers of its caches. It returns the VM,
// or nil where there is none of that id (any more), or not this incarnation of
// it where one is given.
func (c *catalog) fail(id string, only *vm, reason string) *vm {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.vms[id]
	if v == nil || only != nil && v != only {
		return nil
	}
	c.failVM(v, reason)
	return v
}

func (c *catalog) failVM(v *vm, reason string) {
	delete(c.vms, v.id)
	v.failed = reason
	if v.ControlURL == "" {
		close(v.up) // it was starting
	}
	for _, ca := range c.caches {
		for _, s := range ca.shares {
			if s.vm == v {
				ca.log.append(&managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_FAILED, VmId: v.id, Reason: reason})
			}
		}
	}
}

// overdue lists the VMs whose heartbeat was due before now.
func (c *catalog) overdue(now time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for id, v := range c.vms {
		if !v.deadline.IsZero() && v.deadline.Before(now) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// watched returns the cache that a watcher may follow.
func (c *catalog) watched(id string) (*cache, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca := c.caches[id]
	return ca, ca != nil && ca.ready
}

// eventsAfter returns the events of a cache beyond the first n, and a channel
// that is closed when there are more.
func (c *catalog) eventsAfter(ca *cache, n int) ([]*managerv1.WatchResponse, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ca.log.events[n:], ca.log.changed
}

// describe lists caches by id, and VMs by age: those that are up, and failed
// ones that caches still name.
func (c *catalog) describe() *managerv1.DescribeResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make(map[*vm]bool)
	for _, v := range c.vms {
		seen[v] = v.ControlURL != ""
	}
	r := &managerv1.DescribeResponse{}
	for _, ca := range c.caches {
		if !ca.ready {
			continue
		}
		r.Caches = append(r.Caches, ca.proto())
		for _, s := range ca.shares {
			seen[s.vm] = true
		}
	}
	slices.SortFunc(r.Caches, func(a, b *managerv1.Cache) int { return cmp.Compare(a.Id, b.Id) })
	var vms []*vm
	for v, show := range seen {
		if show {
			vms = append(vms, v)
		}
	}
	slices.SortFunc(vms, func(a, b *vm) int { return cmp.Compare(a.order, b.order) })
	for _, v := range vms {
		r.Vms = append(r.Vms, v.proto())
	}
	return r
}

// proto shadows VM's: free memory is what is not promised. Called under mu.
func (v *vm) proto() *managerv1.Vm {
	info := v.VM
	info.ID = v.id
	info.Free = v.memory - v.reserved
	return info.proto(v.failed == "")
}

// proto is called under mu.
func (ca *cache) proto() *managerv1.Cache {
	p := &managerv1.Cache{
		Id: ca.id, Capacity: ca.demand.capacity, Slo: ca.demand.slo,
		Configuration: ca.demand.config, RegionSize: ca.demand.regionSize,
	}
	for _, s := range ca.shares {
		p.Shares = append(p.Shares, &managerv1.VmShare{Vm: s.vm.proto(), Regions: s.regions})
	}
	return p
}
