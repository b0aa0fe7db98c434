package manager

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
)

// This file is how a catalog gets into its store, and out of it. The catalog is
// what is in memory; the store holds what a restart needs of it. A change in memory
// goes to the store before the lock is released, so that nobody sees what could be
// forgotten. Not stored are what others say again, heartbeats and renewals, and sums
// of what is stored. If the store breaks the manager ends: the next one begins with
// what the store holds, and calls that failed have changed nothing.
//
//	vm/ORDER  catalogv1.Vm: each VM in catalog.vms
//	cache/ID  catalogv1.Cache: each cache, with the VMs that have failed it
//	token     what the tokens of launched servers are made from
//	learnt    catalogv1.Learnt
//	setting   catalogv1.Setting
//	epoch     that of the last manager: 8 bytes, big-endian

const (
	vmPrefix    = "vm/"
	cachePrefix = "cache/"
	tokenKey    = "token"
	learntKey   = "learnt"
	settingKey  = "setting"
	epochKey    = "epoch"
)

func vmKey(order uint64) string {
	return vmPrefix + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, order))
}

// unsaved are the objects that differ from what is stored. Guarded by catalog.mu.
type unsaved struct {
	vms    map[*vm]struct{}
	caches map[*cache]struct{}
	learnt bool // what learnt says
}

// touchVM and touchCache say that an object has changed, or was taken out. Called
// under mu, which is released by end.
func (c *catalog) touchVM(v *vm) {
	if c.store != nil {
		c.unsaved.vms[v] = struct{}{}
	}
}

func (c *catalog) touchCache(ca *cache) {
	ca.changes++
	if c.store != nil {
		c.unsaved.caches[ca] = struct{}{}
	}
}

// remember stores what caches and VMs have shown. Should the store fail, the manager
// ends.
func (c *catalog) remember() {
	var err error
	c.mu.Lock()
	defer c.end(&err)
	c.unsaved.learnt = c.store != nil && c.learnt != nil
}

// end saves what was touched and releases mu. Where that fails err says so, unless
// the call has failed already.
func (c *catalog) end(err *error) {
	defer c.mu.Unlock()
	if e := c.save(); e != nil && *err == nil {
		*err = e
	}
}

// save is called under mu.
func (c *catalog) save() error {
	if len(c.unsaved.vms)+len(c.unsaved.caches) == 0 && !c.unsaved.learnt {
		return nil
	}
	changes, err := c.changes()
	if err == nil {
		err = c.store.apply(changes)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errStore, err)
		c.broken(err)
	}
	return err
}

// changes says what save has to write, and forgets it. Called under mu.
func (c *catalog) changes() (changes map[string][]byte, err error) {
	changes = make(map[string][]byte, len(c.unsaved.vms)+len(c.unsaved.caches))
	put := func(key string, there bool, stored func() proto.Message) {
		changes[key] = nil
		if there && err == nil {
			// Not nil, however little there is to say.
			changes[key], err = proto.MarshalOptions{}.MarshalAppend([]byte{}, stored())
		}
	}
	for v := range c.unsaved.vms {
		put(vmKey(v.order), c.vms[v.id] == v, func() proto.Message { return v.stored() })
	}
	for ca := range c.unsaved.caches {
		put(cachePrefix+ca.id, c.caches[ca.id] == ca, func() proto.Message { return ca.stored() })
	}
	if c.unsaved.learnt {
		put(learntKey, true, func() proto.Message { return c.learnt() })
	}
	clear(c.unsaved.vms)
	clear(c.unsaved.caches)
	c.unsaved.learnt = false
	return changes, err
}

// stored is called under mu.
func (v *vm) stored() *catalogv1.Vm {
	info := v.VM
	info.ID = v.id
	p := &catalogv1.Vm{
		Vm: info.proto(true), Order: v.order, Launched: v.launched, Memory: v.memory, Beats: !v.deadline.IsZero(),
		Leaving: v.leaving, Failed: v.failed, ControlSecret: []byte(v.Secret), Speaker: v.speaker,
	}
	if !v.leaves.IsZero() {
		p.LeavesUnixMs = v.leaves.UnixMilli()
	}
	return p
}

// stored is called under mu.
func (ca *cache) stored() *catalogv1.Cache {
	p := &catalogv1.Cache{
		Id: ca.id, Demand: ca.demand.stored(), Shares: storedShares(ca.shares), Pending: storedShares(ca.pending),
		Grants: ca.grants, Ready: ca.ready, LastSequence: ca.log.last, Dropped: ca.log.dropped,
		Decisions: ca.decisions, CreatedUnixMs: toMillis(ca.created),
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

func storedShares(shares []*share) []*catalogv1.Share {
	var all []*catalogv1.Share
	for _, s := range shares {
		p := &catalogv1.Share{Grant: s.grant, VmOrder: s.vm.order, Regions: s.regions, Cores: s.cores, Launch: s.launch, Change: s.change}
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

// loader puts a catalog together from its entries.
type loader struct {
	c        *catalog
	deadline time.Time      // of heartbeats
	vms      map[uint64]*vm // by order, failed ones too
	caches   []*catalogv1.Cache
}

// load fills a new catalog from its store. Every cache begins a new lease, by extend,
// and a new dwell, and every server that is to send heartbeats has to send one soon.
func (c *catalog) load(t term, deadline time.Time) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	l := loader{c: c, deadline: deadline, vms: make(map[uint64]*vm)}
	if err := c.store.load(l.entry); err != nil {
		return err
	}
	for _, p := range l.caches {
		ca, err := l.cache(p)
		if err != nil {
			return fmt.Errorf("%w: cache %.40q: %w", ErrStateCorrupt, p.GetId(), err)
		}
		ca.lease = t.lease
		if p.LeaseMs != nil {
			ca.lease = time.Duration(p.GetLeaseMs()) * time.Millisecond
		}
		ca.extend(t)
		ca.moved = t.now()
		c.caches[ca.id] = ca
	}
	c.dropUnfinished()
	return nil
}

// entry takes up one entry. VMs come after caches in a store's order, so caches
// wait.
func (l *loader) entry(key string, value []byte) error {
	switch {
	case strings.HasPrefix(key, vmPrefix):
		p := new(catalogv1.Vm)
		if err := proto.Unmarshal(value, p); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrStateCorrupt, key, err)
		}
		if key != vmKey(p.GetOrder()) || p.GetFailed() != "" || l.c.vms[p.GetVm().GetId()] != nil {
			return fmt.Errorf("%w: %s holds VM %.40q of order %d", ErrStateCorrupt, key, p.GetVm().GetId(), p.GetOrder())
		}
		v := l.vm(p)
		l.c.vms[v.id] = v
	case strings.HasPrefix(key, cachePrefix):
		p := new(catalogv1.Cache)
		if err := proto.Unmarshal(value, p); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrStateCorrupt, key, err)
		}
		if key != cachePrefix+p.GetId() {
			return fmt.Errorf("%w: %s holds cache %.40q", ErrStateCorrupt, key, p.GetId())
		}
		l.caches = append(l.caches, p)
	case key == tokenKey:
		l.c.earlier.token = string(value)
	case key == learntKey:
		if err := proto.Unmarshal(value, &l.c.earlier.learnt); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrStateCorrupt, key, err)
		}
	case key == settingKey:
		if err := proto.Unmarshal(value, &l.c.earlier.setting); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrStateCorrupt, key, err)
		}
	case key == epochKey:
		if len(value) != 8 {
			return fmt.Errorf("%w: %s of %d bytes", ErrStateCorrupt, key, len(value))
		}
		l.c.earlier.epoch = binary.BigEndian.Uint64(value)
	case key != formatKey:
		return fmt.Errorf("%w: entry %.40q", ErrStateFormat, key)
	}
	return nil
}

// vm makes a VM, once for each incarnation.
func (l *loader) vm(p *catalogv1.Vm) *vm {
	if v := l.vms[p.GetOrder()]; v != nil {
		return v
	}
	v := &vm{
		VM: vmFromProto(p.GetVm()), id: p.GetVm().GetId(), order: p.GetOrder(), launched: p.GetLaunched(),
		memory: p.GetMemory(), leaving: p.GetLeaving(), failed: p.GetFailed(), up: make(chan struct{}),
	}
	if v.ControlURL != "" || v.failed != "" {
		close(v.up)
	}
	v.Secret, v.speaker = string(p.GetControlSecret()), p.GetSpeaker()
	if p.GetBeats() {
		v.deadline = l.deadline
	}
	if ms := p.GetLeavesUnixMs(); ms != 0 {
		v.leaves = time.UnixMilli(ms)
	}
	l.vms[v.order] = v
	l.c.joined = max(l.c.joined, v.order)
	return v
}

func (l *loader) cache(p *catalogv1.Cache) (*cache, error) {
	ca := &cache{id: p.GetId(), demand: demandFrom(p.GetDemand()), grants: p.GetGrants(), ready: p.GetReady(), log: newEventLog(),
		decisions: p.GetDecisions(), created: fromMillis(p.GetCreatedUnixMs()), change: p.GetSettled(),
	}
	if err := ca.demand.checkStored(); err != nil {
		return nil, err
	}
	var err error
	if ca.shares, err = l.shares(ca, p.GetShares()); err != nil {
		return nil, err
	}
	if ca.pending, err = l.shares(ca, p.GetPending()); err != nil {
		return nil, err
	}
	ca.log.last, ca.log.dropped = p.GetLastSequence(), p.GetDropped()
	for _, e := range p.GetEvents() {
		if e.GetMessage().GetKind() == managerv1.WatchResponse_KIND_VM_SUSPECTED {
			continue // of a manager that listened before this one
		}
		v := l.vms[e.GetVmOrder()]
		if v == nil && e.GetVmOrder() != 0 || e.GetMessage().GetSequence() > ca.log.last {
			return nil, fmt.Errorf("event %d of %d is about VM %d", e.GetMessage().GetSequence(), ca.log.last, e.GetVmOrder())
		}
		ca.log.events = append(ca.log.events, event{vm: v, message: e.GetMessage()})
	}
	return ca, nil
}

// checkStored holds what sums are made of against its bounds.
func (d demand) checkStored() error {
	if size, _, err := regionsFor(d.capacity, d.regionSize); err != nil || size != d.regionSize {
		return fmt.Errorf("capacity %d in regions of %d bytes: %w", d.capacity, d.regionSize, err)
	}
	return checkConfiguration(d.config, d.slo.GetRecordSize())
}

func (l *loader) shares(ca *cache, stored []*catalogv1.Share) ([]*share, error) {
	var all []*share
	for _, p := range stored {
		v := l.vms[p.GetVmOrder()]
		if v == nil && p.GetFailed().GetFailed() != "" && p.GetFailed().GetOrder() == p.GetVmOrder() {
			v = l.vm(p.GetFailed())
		}
		if v == nil || p.GetRegions() < 1 || p.GetRegions() > maxRegions {
			return nil, fmt.Errorf("grant %.40q has %d regions of VM %d", p.GetGrant(), p.GetRegions(), p.GetVmOrder())
		}
		s := &share{
			grant: p.GetGrant(), vm: v, regions: p.GetRegions(), cores: p.GetCores(),
			bytes: uint64(p.GetRegions()) * ca.demand.regionSize, launch: p.GetLaunch(), change: p.GetChange(),
		}
		if ca.ready { // what was not answered is dropped
			v.grants++
			v.reserved += s.bytes
			v.threads += s.cores
		}
		all = append(all, s)
	}
	return all, nil
}

// dropUnfinished forgets what an earlier manager had begun and nobody was told of:
// allocations that were not answered, and launched VMs that no cache has. Called
// under mu.
func (c *catalog) dropUnfinished() {
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
func (c *catalog) launchedIDs() []string {
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
