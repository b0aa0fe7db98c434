package manager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
)

// vm is one incarnation of a VM. id, launched, order and transport do not change; the rest is
// guarded by state.mu.
//
//	launched by the allocator      registered by itself
//	  starting ──register──► up ◄──register──
//	     │                  │  └─reclaim─► leaving
//	     └───────fail───────┴──► failed ◄──fail──┘
//
// Only servers that registered themselves are in the pool, and only while they are up. A
// failed VM is removed from state.vms, and from state.orders with its last grant.
type vm struct {
	stored
	node.VM    // while starting, the properties ordered
	id         string
	registrant string // name of the token that registered it; empty: none
	order      uint64 // sequence number of entering the state
	launched   bool   // by the allocator, for one cache
	transport  string // to launch it with
	warm       bool   // of a warm pool; no cache has it yet
	failed     string // why it failed; empty: it has not
	gone       bool   // it has no record any more

	entered    time.Time       // when it was ordered; zero: it registered itself
	launching  bool            // the allocator has been told, or has taken it over
	launchErr  error           // of the allocator; nil: none
	unwanted   error           // why the request that it was launched for was given up; nil: it was not, or that is not known
	waits      string          // why it does not start yet, as the allocator says; empty: it starts
	waitsSince time.Time       // beginning of that
	place      allocator.Place // as the allocator says; zero: unknown

	memory      uint64              // bytes that can be granted
	held        map[*grant]struct{} // all grants of its memory
	lent        int                 // grants that are not leaving
	visits      uint64              // grants that caches other than a calibration's have got
	reserved    uint64              // bytes of all grants
	threads     uint32              // server threads of all grants
	short       uint64              // bytes by which the last heartbeat had less free memory than memory and reserved say
	hidden      uint64              // bytes that the server lends and no grant has: the last two heartbeats lacked them
	deadline    time.Time           // of the next heartbeat; zero: it sends none
	called      bool                // it has called this leader
	silent      bool                // the deadline has passed
	suspected   bool                // silent, and its caches were notified
	leaves      time.Time           // when it is taken back; zero: it is not reclaimed
	notice      time.Duration       // from the reclaim until leaves
	leaving     string              // why it is reclaimed
	audited     time.Time           // the last audit began
	strays      map[stray]sighting  // grants that it has and no cache
	ending      bool                // it is terminated
	observed    bool                // the predictor has been told of its end
	unreachable bool                // it has failed, and its server does not answer
}

// hold counts a grant at its VM. Called under mu.
func (v *vm) hold(g *grant) {
	v.held[g] = struct{}{}
	v.reserved += g.bytes()
	v.threads += g.cores
	if g.phase != leaving {
		v.lent++
	}
}

// enter adds a VM. Called under mu.
func (c *state) enter(v *vm) *vm {
	c.joined++
	v.order = c.joined
	v.held = make(map[*grant]struct{})
	c.vms[v.id], c.orders[v.order] = v, v
	c.setWarm(v, v.warm)
	if !v.leaves.IsZero() {
		c.reclaimed[v] = struct{}{}
	}
	if v.launched {
		c.launching(v)
	}
	c.touch(v)
	c.queue(v.key())
	return v
}

// vmFrom returns the VM of a record.
func vmFrom(p *catalogv1.Vm) *vm {
	v := &vm{
		VM: node.FromProto(p.GetVm()), id: p.GetVm().GetId(), order: p.GetOrder(), launched: p.GetLaunched(),
		memory: p.GetMemory(), leaving: p.GetLeaving(), failed: p.GetFailed(), leaves: api.FromMillis(p.GetLeavesUnixMs()),
		notice:     time.Duration(p.GetLeavesNoticeMs()) * time.Millisecond,
		registrant: p.GetRegistrant(), warm: p.GetWarm(), observed: p.GetObserved(), held: make(map[*grant]struct{}),
	}
	v.Secret = string(p.GetControlSecret())
	return v
}

// free returns the bytes that can be granted now. Called under mu.
func (v *vm) free() uint64 { return v.memory - min(v.memory, v.reserved+v.hidden) }

// usable reports why no memory of a VM may be granted. Called under mu.
func (v *vm) usable() error {
	switch {
	case v.failed != "":
		return fmt.Errorf("VM %s: %s", v.id, v.failed)
	case !v.leaves.IsZero():
		return fmt.Errorf("VM %s %w: %s", v.id, errLeaving, v.leaving)
	case v.silent:
		return fmt.Errorf("VM %s sends no heartbeats", v.id)
	case v.ending:
		return fmt.Errorf("VM %s is terminated", v.id)
	}
	return nil
}

// launchedPrefix is the prefix of the ids of launched VMs, and of no others: a launched VM
// that has failed cannot register again as a server of the pool.
const launchedPrefix = "vm-"

// startedAgain is why an incarnation fails when the next one registers.
const startedAgain = "its server was started again"

// register makes a VM usable. A server repeats its registration if it got no answer. The number
// of the server's incarnation, info.Start, tells a repetition, a server that was started again,
// and a late call of one that has ended.
func (c *state) register(info node.VM, registrant string, deadline time.Time) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	v, next := c.vms[info.ID], &vm{id: info.ID}
	if v != nil && v.ControlURL != "" {
		switch {
		case info.Start == v.Start:
			c.heard(v, deadline)
			if v.registrant != registrant {
				v.registrant = registrant
				c.touch(v)
			}
			return nil
		case info.Start < v.Start:
			return &api.StartError{VM: v.id, Present: v.Start}
		}
		// A reclaim also applies to the new server: no memory of it is granted until the
		// deadline has passed and it has registered again.
		next.leaves, next.notice, next.leaving = v.leaves, v.notice, v.leaving
		c.failVM(v, startedAgain)
		v = nil
	}
	switch {
	case v != nil: // it was launched, and is starting
	case strings.HasPrefix(info.ID, launchedPrefix):
		return fmt.Errorf("VM %s was launched for a cache, and has ended", info.ID)
	case len(c.vms) >= maxVMs:
		return &api.CapacityError{What: "catalog: number of VMs", Asked: maxVMs + 1, Available: maxVMs}
	default:
		v = c.enter(next)
	}
	if info.Free < v.reserved {
		return fmt.Errorf("VM %s lends %v, less than the %v that it was launched for", v.id, units.Size(info.Free), units.Size(v.reserved))
	}
	if v.launched {
		v.deliver(&info)
		delete(c.backoffs, shopKind(v.kind()))
	}
	v.VM, v.registrant, v.memory, v.deadline, v.called = info, registrant, info.Free, deadline, true
	c.touch(v)
	c.list(v)
	c.stirred(v)
	return nil
}

// registrantOf returns the name of the token that registered a VM, and whether the VM was
// launched.
func (c *state) registrantOf(id string) (launched bool, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.vms[id]; v != nil {
		return v.launched, v.registrant
	}
	return false, ""
}

// deliver sets in the properties that a launched VM announces those that were ordered, and
// its distance unless it announces one. Called under mu.
func (v *vm) deliver(info *node.VM) {
	info.Type, info.Spot, info.CloudRegion, info.Price, info.Notice = v.Type, v.Spot, v.CloudRegion, v.Price, v.Notice
	info.Distance = cmp.Or(info.Distance, v.Distance)
}

// waiting notes why a launched VM does not start yet, empty if it does. It returns the VM if it
// starts after it has waited.
func (c *state) waiting(id, reason string, now time.Time) *vm {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.vms[id]
	if v == nil || !v.launched || v.ControlURL != "" {
		return nil
	}
	waited := v.waits != ""
	if !waited {
		v.waitsSince = now
	}
	v.waits = strings.ToValidUTF8(reason, "?")
	if !waited || reason != "" {
		return nil
	}
	v.entered = time.Now() // it has the launch timeout from now on
	return v
}

// placed notes where a launched VM runs.
func (c *state) placed(id string, at allocator.Place) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	v := c.vms[id]
	if v == nil || !v.launched {
		return fmt.Errorf("%w %.40q", errUnknownVM, id)
	}
	at.Machine, at.Name = strings.ToValidUTF8(at.Machine, "?"), strings.ToValidUTF8(at.Name, "?")
	v.place = at
	if at.Distance != 0 && at.Distance != v.Distance {
		v.Distance = at.Distance
		c.touch(v)
		c.list(v)
		c.stirred(v)
	}
	return nil
}

// unheard returns a launched VM whose server has not registered, or is silent and lends no
// memory to a cache. A client that has memory there decides itself whether it is lost, as it is
// told that the server is suspected; and a manager that is blind may be all that is cut off.
func (c *state) unheard(id string) *vm {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.vms[id]; v != nil && v.launched && (v.ControlURL == "" || v.silent && v.lent == 0 && !c.blind) {
		return v
	}
	return nil
}

// heartbeat postpones a VM's deadline. deadline is called under mu, as a call may wait for
// mu. It returns the change that is to be written before the call is answered; nil: none. The
// error is errUnknownVM if this incarnation is not up.
func (c *state) heartbeat(id string, start, free uint64, deadline func() time.Time) (*txn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.vms[id]
	if v == nil || v.ControlURL == "" || v.Start != start {
		return nil, fmt.Errorf("%w %.40q is registered", errUnknownVM, id)
	}
	if !v.deadline.IsZero() {
		c.heard(v, deadline())
	}
	// A server that registered while it lent memory to caches of an earlier manager can lend
	// more when that is released.
	if free = min(free, v.Memory); v.reserved == 0 && free > v.memory {
		v.memory = free
		c.touch(v)
		c.list(v)
	}
	// One heartbeat may have been on its way while memory was taken back; two of them were not.
	short := v.memory - min(v.memory, v.reserved+free)
	if hidden := min(short, v.short); hidden != v.hidden {
		v.hidden = hidden
		c.list(v)
	}
	v.short = short
	return c.flush()
}

// reclaim announces that a VM is taken back, and tells the watchers of its caches. It
// returns the earliest deadline that was announced, which holds, and whether this is the first.
// start is that of the incarnation; 0: any. The error is errUnknownVM.
func (c *state) reclaim(id string, start uint64, now, deadline time.Time, reason string) (_ time.Time, first bool, err error) {
	c.mu.Lock()
	defer c.end(&err)
	v := c.vms[id]
	if v == nil || start != 0 && v.Start != start {
		return time.Time{}, false, fmt.Errorf("%w %.40q", errUnknownVM, id)
	}
	if first = v.leaves.IsZero(); !first && !deadline.Before(v.leaves) {
		return v.leaves, false, nil
	}
	reason = strings.ToValidUTF8(reason, "?")
	v.leaves, v.notice, v.leaving = deadline, max(time.Millisecond, deadline.Sub(now)), reason
	c.reclaimed[v] = struct{}{}
	c.touch(v)
	c.list(v)
	c.stirred(v)
	c.notify(v, &managerv1.WatchResponse{
		Kind: managerv1.WatchResponse_KIND_VM_RECLAIMED, DeadlineUnixMs: deadline.UnixMilli(), Reason: reason,
	})
	return deadline, first, nil
}

// left returns the time until a VM is taken back, in milliseconds and at least 1; 0: it is
// not reclaimed. Called under mu.
func (v *vm) left(now time.Time) int64 {
	if v.leaves.IsZero() {
		return 0
	}
	return max(1, v.leaves.Sub(now).Milliseconds())
}

// fail removes a VM and tells the watchers of its caches. It returns the VM, or nil if there
// is none of that id, or it is not the incarnation only. If the store fails, a restart
// finds that the VM has failed.
func (c *state) fail(id string, only *vm, reason string) (_ *vm, err error) {
	c.mu.Lock()
	defer c.end(&err)
	v := c.vms[id]
	if v == nil || only != nil && v != only {
		return nil, nil
	}
	c.failVM(v, reason)
	return v, nil
}

// failBatch bounds the VMs that fail under one hold of mu.
const failBatch = 64

// failAll fails the VMs of losses that have not failed yet, and returns when all that is
// written.
func (c *state) failAll(lost []loss) (failed []loss, err error) {
	var last *txn
	for part := range slices.Chunk(lost, failBatch) {
		c.mu.Lock()
		for _, l := range part {
			if c.vms[l.vm.id] == l.vm {
				c.failVM(l.vm, l.reason)
				failed = append(failed, l)
			}
		}
		t, e := c.flush()
		c.mu.Unlock()
		last, err = cmp.Or(t, last), errors.Join(err, e)
	}
	if last != nil { // txns are written in order
		err = errors.Join(err, c.writer.wait(last))
	}
	return failed, err
}

// failVM is called under mu. reason may come from a process and contain anything.
func (c *state) failVM(v *vm, reason string) {
	v.failed = strings.ToValidUTF8(reason, "?")
	if v.launched && v.ControlURL == "" {
		c.launchFailed(v)
	}
	delete(c.vms, v.id)
	delete(c.warms, v)
	delete(c.reclaimed, v)
	c.list(v)
	c.touch(v)
	c.queue(v.key())
	c.stirred(v)
	c.notify(v, &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_FAILED, Reason: v.failed})
	for g := range v.held {
		if g.phase == leaving {
			c.queue(g.key())
		}
	}
}

// stirred lets the requests proceed that wait for a VM. Called under mu.
func (c *state) stirred(v *vm) {
	for g := range v.held {
		if g.phase == reserved {
			c.queue(cachePrefix + g.cache)
		}
	}
}

// notify tells the caches with grants on a VM an event. Called under mu.
func (c *state) notify(v *vm, e *managerv1.WatchResponse) {
	for _, ca := range c.users(v) {
		c.tell(ca, v, &managerv1.WatchResponse{Kind: e.Kind, VmId: v.id, Start: v.Start, DeadlineUnixMs: e.DeadlineUnixMs, Reason: e.Reason})
	}
}

// loss is a VM that fails or is suspected, and why.
type loss struct {
	vm     *vm
	reason string
}

// overdue lists the reclaimed VMs whose deadline has passed.
func (c *state) overdue(now time.Time) []loss {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []loss
	for v := range c.reclaimed {
		if !now.Before(v.leaves) {
			all = append(all, loss{v, "deadline passed: " + v.leaving})
		}
	}
	slices.SortFunc(all, func(a, b loss) int { return strings.Compare(a.vm.id, b.vm.id) })
	return all
}

// nextLeave returns the next deadline of a reclaimed VM.
func (c *state) nextLeave() (next time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for v := range c.reclaimed {
		if !ok || v.leaves.Before(next) {
			next, ok = v.leaves, true
		}
	}
	return next, ok
}
