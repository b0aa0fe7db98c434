package manager

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/catalog"
	"github.com/redykv/redykv/manager/node"
)

// This file stores and loads the state. A change is stored before the lock is released, so
// that no call sees a change that could be lost. Heartbeats and renewals, which are
// repeated, and sums of stored values are not stored. If the store fails the manager ends;
// the next one starts with the content of the store.

// errStore is the error of a change that could not be stored.
var errStore = errors.New("catalog not written")

// unsaved are the objects that differ from their records. Guarded by state.mu.
type unsaved struct {
	vms    map[*vm]struct{}
	caches map[*cache]struct{}
	learnt bool // the measurements
}

// touchVM and touchCache record that an object has changed or was removed. Called under mu,
// which end releases.
func (c *state) touchVM(v *vm) {
	if c.store != nil {
		c.unsaved.vms[v] = struct{}{}
	}
}

func (c *state) touchCache(ca *cache) {
	ca.changes++
	if c.store != nil {
		c.unsaved.caches[ca] = struct{}{}
	}
}

// remember stores the measurements. If the store fails, the manager ends.
func (c *state) remember() {
	var err error
	c.mu.Lock()
	defer c.end(&err)
	c.unsaved.learnt = c.store != nil && c.learnt != nil
}

// end saves the touched objects and releases mu. It sets err if that fails and the call has
// not failed.
func (c *state) end(err *error) {
	defer c.mu.Unlock()
	if e := c.save(); e != nil && *err == nil {
		*err = e
	}
}

// save is called under mu.
func (c *state) save() error {
	if len(c.unsaved.vms)+len(c.unsaved.caches) == 0 && !c.unsaved.learnt {
		return nil
	}
	changes, err := c.changes()
	if err == nil {
		err = c.store.Apply(changes)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errStore, err)
		c.broken(err)
	}
	return err
}

// changes returns the records that save has to write, and clears unsaved. Called under mu.
func (c *state) changes() (catalog.Changes, error) {
	changes := make(catalog.Changes, len(c.unsaved.vms)+len(c.unsaved.caches))
	var errs []error
	for v := range c.unsaved.vms {
		var p *catalogv1.Vm // nil: it is deleted
		if c.vms[v.id] == v {
			p = v.stored()
		}
		errs = append(errs, changes.VM(v.order, p))
	}
	for ca := range c.unsaved.caches {
		var p *catalogv1.Cache
		if c.caches[ca.id] == ca {
			p = ca.stored()
		}
		errs = append(errs, changes.Cache(ca.id, p))
	}
	if c.unsaved.learnt {
		errs = append(errs, changes.Learnt(c.learnt()))
	}
	clear(c.unsaved.vms)
	clear(c.unsaved.caches)
	c.unsaved.learnt = false
	return changes, errors.Join(errs...)
}

// stored is called under mu.
func (v *vm) stored() *catalogv1.Vm {
	info := v.VM
	info.ID = v.id
	return &catalogv1.Vm{
		Vm: info.Proto(true), Order: v.order, Launched: v.launched, Memory: v.memory, Beats: !v.deadline.IsZero(),
		Leaving: v.leaving, Failed: v.failed, ControlSecret: []byte(v.Secret), Registrant: v.registrant,
		LeavesUnixMs: api.ToMillis(v.leaves),
	}
}

// stored is called under mu.
func (ca *cache) stored() *catalogv1.Cache {
	p := &catalogv1.Cache{
		Id: ca.id, Demand: ca.demand.stored(), Grants: storedGrants(ca.grants), Pending: storedGrants(ca.pending),
		Given: ca.given, Ready: ca.ready, LastSequence: ca.log.last, Dropped: ca.log.dropped,
		Decisions: ca.decisions, CreatedUnixMs: api.ToMillis(ca.created),
		LeaseMs: proto.Int64(ca.lease.Milliseconds()), Settled: ca.change,
	}
	for _, e := range ca.log.events {
		s := &catalogv1.Event{Message: e.message}
		if e.vm != nil {
			s.VmOrder = e.vm.order
		}
		p.Events = append(p.Events, s)
	}
	return p
}

func storedGrants(grants []*grant) []*catalogv1.Grant {
	var all []*catalogv1.Grant
	for _, s := range grants {
		p := &catalogv1.Grant{Id: s.id, VmOrder: s.vm.order, Regions: s.regions, Cores: s.cores, Launch: s.launch, Change: s.change}
		if s.vm.failed != "" {
			p.Failed = s.vm.stored()
		}
		all = append(all, p)
	}
	return all
}

func (d demand) stored() *catalogv1.Demand {
	return &catalogv1.Demand{
		Capacity: d.capacity, RegionSize: d.regionSize, Regions: d.regions, Per: d.per,
		Slo: d.slo, Configuration: d.config, Transport: d.transport,
		DurationSeconds: d.duration, Distance: d.distance, CloudRegion: d.cloudRegion, Client: d.client,
	}
}

func demandFrom(p *catalogv1.Demand) demand {
	return demand{
		capacity: p.GetCapacity(), regionSize: p.GetRegionSize(), regions: p.GetRegions(), per: p.GetPer(),
		slo: p.GetSlo(), config: p.GetConfiguration(), transport: p.GetTransport(),
		duration: p.GetDurationSeconds(), distance: p.GetDistance(), cloudRegion: p.GetCloudRegion(), client: p.GetClient(),
	}
}

// loader restores the state from the records of a store.
type loader struct {
	c        *state
	deadline time.Time      // of heartbeats
	vms      map[uint64]*vm // by order, failed ones too
}

// load restores a new state from its store. Every cache begins a new lease, by extend,
// and a new dwell, and every server that is to send heartbeats has to send one soon.
func (c *state) load(t term, deadline time.Time) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	stored, err := catalog.Read(c.store)
	if err != nil {
		return err
	}
	c.earlier = stored
	l := loader{c: c, deadline: deadline, vms: make(map[uint64]*vm)}
	for _, p := range stored.VMs {
		if c.vms[p.GetVm().GetId()] != nil {
			return fmt.Errorf("%w: VM %.40q has two records", catalog.ErrCorrupt, p.GetVm().GetId())
		}
		v := l.vm(p)
		c.vms[v.id] = v
	}
	for _, p := range stored.Caches {
		ca, err := l.cache(p)
		if err != nil {
			return fmt.Errorf("%w: cache %.40q: %w", catalog.ErrCorrupt, p.GetId(), err)
		}
		ca.lease = t.lease
		if p.LeaseMs != nil {
			ca.lease = time.Duration(p.GetLeaseMs()) * time.Millisecond
		}
		ca.extend(t)
		ca.moved = t.now()
		c.caches[ca.id] = ca
	}
	stored.VMs, stored.Caches = nil, nil
	c.dropUnfinished()
	return nil
}

// vm returns the VM of a record, the same one for each record of an incarnation.
func (l *loader) vm(p *catalogv1.Vm) *vm {
	if v := l.vms[p.GetOrder()]; v != nil {
		return v
	}
	v := &vm{
		VM: node.FromProto(p.GetVm()), id: p.GetVm().GetId(), order: p.GetOrder(), launched: p.GetLaunched(),
		memory: p.GetMemory(), leaving: p.GetLeaving(), failed: p.GetFailed(), up: make(chan struct{}),
		leaves: api.FromMillis(p.GetLeavesUnixMs()), registrant: p.GetRegistrant(),
	}
	if v.ControlURL != "" || v.failed != "" {
		close(v.up)
	}
	v.Secret = string(p.GetControlSecret())
	if p.GetBeats() {
		v.deadline = l.deadline
	}
	l.vms[v.order] = v
	l.c.joined = max(l.c.joined, v.order)
	return v
}

func (l *loader) cache(p *catalogv1.Cache) (*cache, error) {
	ca := &cache{id: p.GetId(), demand: demandFrom(p.GetDemand()), given: p.GetGiven(), ready: p.GetReady(), log: newEventLog(),
		decisions: p.GetDecisions(), created: api.FromMillis(p.GetCreatedUnixMs()), change: p.GetSettled(),
	}
	if err := ca.demand.checkStored(); err != nil {
		return nil, err
	}
	var err error
	if ca.grants, err = l.grants(ca, p.GetGrants()); err != nil {
		return nil, err
	}
	if ca.pending, err = l.grants(ca, p.GetPending()); err != nil {
		return nil, err
	}
	ca.log.last, ca.log.dropped = p.GetLastSequence(), p.GetDropped()
	for _, e := range p.GetEvents() {
		if e.GetMessage().GetKind() == managerv1.WatchResponse_KIND_VM_SUSPECTED {
			continue // of an earlier manager
		}
		v := l.vms[e.GetVmOrder()]
		if v == nil && e.GetVmOrder() != 0 || e.GetMessage().GetSequence() > ca.log.last {
			return nil, fmt.Errorf("event %d of %d is about VM %d", e.GetMessage().GetSequence(), ca.log.last, e.GetVmOrder())
		}
		ca.log.events = append(ca.log.events, event{vm: v, message: e.GetMessage()})
	}
	return ca, nil
}

// checkStored checks the bounds of values that are summed.
func (d demand) checkStored() error {
	if size, _, err := regionsFor(d.capacity, d.regionSize); err != nil || size != d.regionSize {
		return fmt.Errorf("capacity %d in regions of %d bytes: %w", d.capacity, d.regionSize, err)
	}
	return checkConfiguration(d.config, d.slo.GetRecordSize())
}

func (l *loader) grants(ca *cache, stored []*catalogv1.Grant) ([]*grant, error) {
	var all []*grant
	for _, p := range stored {
		v := l.vms[p.GetVmOrder()]
		if v == nil && p.GetFailed().GetFailed() != "" && p.GetFailed().GetOrder() == p.GetVmOrder() {
			v = l.vm(p.GetFailed())
		}
		if v == nil || p.GetRegions() < 1 || p.GetRegions() > maxRegions {
			return nil, fmt.Errorf("grant %.40q has %d regions of VM %d", p.GetId(), p.GetRegions(), p.GetVmOrder())
		}
		s := &grant{
			id: p.GetId(), vm: v, regions: p.GetRegions(), cores: p.GetCores(),
			bytes: uint64(p.GetRegions()) * ca.demand.regionSize, launch: p.GetLaunch(), change: p.GetChange(),
		}
		if ca.ready { // others are dropped
			v.grants++
			v.reserved += s.bytes
			v.threads += s.cores
		}
		all = append(all, s)
	}
	return all, nil
}

// dropUnfinished removes what an earlier manager began and did not finish: allocations that
// were not answered, and launched VMs without grants. Called under mu.
func (c *state) dropUnfinished() {
	for id, ca := range c.caches {
		if !ca.ready {
			delete(c.caches, id)
			c.touchCache(ca)
		}
	}
	for id, v := range c.vms {
		if v.ControlURL == "" || v.launched && v.grants == 0 {
			delete(c.vms, id)
			c.touchVM(v)
		}
	}
}

// launchedIDs lists the VMs that an allocator has launched.
func (c *state) launchedIDs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for id, v := range c.vms {
		if v.launched {
			ids = append(ids, id)
		}
	}
	return ids
}
