package manager

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/node"
)

// vm is one incarnation of a VM. id, launched and up do not change; the rest is
// guarded by state.mu.
//
//	launched by the allocator      registered by itself
//	  starting ──register──► up ◄──register──
//	     │                  │  └─reclaim─► leaving
//	     └───────fail───────┴──► failed ◄──fail──┘
//
// Only servers that registered by themselves are in the pool, and only while
// they are up. A failed VM leaves state.vms at once and lives on in the grants
// of the caches that it failed.
type vm struct {
	node.VM    // while starting, what was ordered
	id         string
	registrant string        // the token that registered it, by its name; empty: it took none
	order      uint64        // of entering the catalog
	launched   bool          // by the allocator, for one cache
	warm       bool          // launched for a pool, and no cache has it yet
	failed     string        // why; empty while it has not
	up         chan struct{} // closed when the VM has registered or failed

	memory    uint64    // bytes that can be lent
	reserved  uint64    // bytes promised to caches
	threads   uint32    // server threads promised to caches
	grants    int       // that have not parted
	deadline  time.Time // of the next heartbeat; zero: none is expected
	called    bool      // this run of the manager: it is the one that the server obeys
	unheard   bool      // the deadline has passed
	suspected bool      // as well, and its caches were told
	leaves    time.Time // when it is gone; zero: it is not leaving
	leaving   string    // why
}

// enter adds a VM. Called under mu.
func (c *state) enter(v *vm) *vm {
	c.joined++
	v.order = c.joined
	v.up = make(chan struct{})
	c.vms[v.id] = v
	c.touchVM(v)
	return v
}

// usable says why a VM must not be given to anybody. Called under mu.
func (v *vm) usable() error {
	switch {
	case v.failed != "":
		return fmt.Errorf("VM %s: %s", v.id, v.failed)
	case !v.leaves.IsZero():
		return fmt.Errorf("VM %s %w: %s", v.id, errLeaving, v.leaving)
	case v.unheard:
		return fmt.Errorf("VM %s is not heard", v.id)
	}
	return nil
}

// candidate is called under mu.
func (v *vm) candidate() candidate {
	return candidate{
		vm: v, transport: v.Transport, memory: max(v.Memory, v.memory), free: v.memory - v.reserved,
		cores: v.Cores - min(v.Cores, v.threads), distance: v.Distance, price: v.Price,
	}
}

// launchedPrefix begins the ids of launched VMs, and of no others: one that was
// given up cannot come back as a server that registered itself.
const launchedPrefix = "vm-"

// register makes a VM usable. A server may say the same twice, for it does not
// know whether it was heard; any other that is up already under this id is an
// earlier incarnation, and failed.
func (c *state) register(info node.VM, registrant string, deadline time.Time) (err error) {
	c.mu.Lock()
	defer c.end(&err)
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
		c.heard(v, deadline)
		if v.registrant != registrant {
			v.registrant = registrant
			c.touchVM(v)
		}
		return nil
	case v != nil && v.ControlURL != "":
		c.failVM(v, "its server was started again")
		// Its host goes all the same, if it was to: nobody is given memory of it
		// before the deadline has passed and it registers once more.
		v = c.enter(&vm{id: info.ID, leaves: v.leaves, leaving: v.leaving})
	case v == nil:
		if len(c.vms) >= maxVMs {
			return &api.CapacityError{What: "catalog: number of VMs", Asked: maxVMs + 1, Available: maxVMs}
		}
		v = c.enter(&vm{id: info.ID})
	}
	if info.Free < v.reserved {
		return fmt.Errorf("VM %s lends %v, less than the %v that it was launched for", v.id, units.Size(info.Free), units.Size(v.reserved))
	}
	if v.launched {
		v.deliver(&info)
	}
	v.VM, v.registrant, v.memory, v.deadline, v.called = info, registrant, info.Free, deadline, true
	c.touchVM(v)
	close(v.up)
	return nil
}

// registrantOf returns the token that a VM was registered with, by its name, and whether
// it was launched.
func (c *state) registrantOf(id string) (launched bool, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.vms[id]; v != nil {
		return v.launched, v.registrant
	}
	return false, ""
}

// deliver completes what a launched VM says of itself by what was ordered. Called
// under mu.
func (v *vm) deliver(info *node.VM) {
	info.Type, info.Spot, info.CloudRegion, info.Price, info.Notice = v.Type, v.Spot, v.CloudRegion, v.Price, v.Notice
	if v.Distance != 0 {
		info.Distance = v.Distance
	}
}

// repeats says whether a server that registers is the one that is up already. A
// new process may have the addresses of the old one, but has lent nothing yet;
// where caches were promised memory, that tells the two apart. Called under mu.
func (v *vm) repeats(info node.VM) bool {
	fresh := info.Free == info.Memory
	info.Free, info.Started = v.Free, v.Started
	return info == v.VM && (v.reserved == 0 || !fresh)
}

// heartbeat postpones a VM's deadline, which is asked for under mu, for which a call
// may have waited. The error is errUnknownVM where no such VM is up.
func (c *state) heartbeat(id string, free uint64, deadline func() time.Time) (err error) {
	c.mu.Lock()
	defer c.end(&err)
	v := c.vms[id]
	if v == nil || v.ControlURL == "" {
		return fmt.Errorf("%w %.40q is registered", errUnknownVM, id)
	}
	if !v.deadline.IsZero() {
		c.heard(v, deadline())
	}
	// A server that registered while caches of an earlier manager still held
	// part of it can lend more once they have left.
	if free = min(free, v.Memory); v.reserved == 0 && free > v.memory {
		v.memory = free
		c.touchVM(v)
	}
	return nil
}

// reclaim announces that a VM goes, and tells the watchers of its caches. The
// earliest deadline that was ever announced holds, and is returned. The error is
// errUnknownVM where there is no such VM.
func (c *state) reclaim(id string, deadline time.Time, reason string) (_ time.Time, err error) {
	c.mu.Lock()
	defer c.end(&err)
	v := c.vms[id]
	if v == nil {
		return time.Time{}, fmt.Errorf("%w %.40q", errUnknownVM, id)
	}
	if !v.leaves.IsZero() && !deadline.Before(v.leaves) {
		return v.leaves, nil
	}
	reason = strings.ToValidUTF8(reason, "?")
	v.leaves, v.leaving = deadline, reason
	c.touchVM(v)
	c.tell(v, &managerv1.WatchResponse{
		Kind: managerv1.WatchResponse_KIND_VM_RECLAIMED, VmId: v.id, DeadlineUnixMs: deadline.UnixMilli(), Reason: reason,
	})
	return deadline, nil
}

// left is how long a VM stays from now on, in milliseconds and at least 1; 0: it is not
// leaving. Called under mu.
func (v *vm) left(now time.Time) int64 {
	if v.leaves.IsZero() {
		return 0
	}
	return max(1, v.leaves.Sub(now).Milliseconds())
}

// fail takes a VM out and tells the watchers of its caches. It returns the VM,
// or nil where there is none of that id (any more), or not this incarnation of
// it where one is given. Should the store fail, a restart finds the VM gone.
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

// failVM is called under mu. What a process has said at its end may be anything.
func (c *state) failVM(v *vm, reason string) {
	reason = strings.ToValidUTF8(reason, "?")
	delete(c.vms, v.id)
	c.touchVM(v)
	v.failed = reason
	if v.ControlURL == "" {
		close(v.up) // it was starting
	}
	c.tell(v, &managerv1.WatchResponse{Kind: managerv1.WatchResponse_KIND_VM_FAILED, VmId: v.id, Reason: reason})
}

// tell appends an event about a VM to the logs of the caches that have grants on
// it. Called under mu.
func (c *state) tell(v *vm, e *managerv1.WatchResponse) {
	for _, ca := range c.caches {
		if ca.holds(v) {
			c.touchCache(ca)
			ca.log.append(v, &managerv1.WatchResponse{Kind: e.Kind, VmId: e.VmId, DeadlineUnixMs: e.DeadlineUnixMs, Reason: e.Reason})
		}
	}
}

// loss is a VM that has to be failed, or is suspected.
type loss struct {
	vm     *vm
	reason string
}

// overdue lists the VMs that had announced to be gone by now.
func (c *state) overdue(now time.Time) []loss {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []loss
	for _, v := range c.vms {
		if !v.leaves.IsZero() && !now.Before(v.leaves) {
			all = append(all, loss{v, "time is up: " + v.leaving})
		}
	}
	slices.SortFunc(all, func(a, b loss) int { return strings.Compare(a.vm.id, b.vm.id) })
	return all
}

// beats says whether a VM is there and its silence would be noticed, and whether caches
// have anything there.
func (c *state) beats(v *vm) (beats, used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return v.failed == "" && !v.deadline.IsZero(), v.grants > 0
}

// nextLeave returns when the next VM is gone that has announced it.
func (c *state) nextLeave() (next time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.vms {
		if !v.leaves.IsZero() && (!ok || v.leaves.Before(next)) {
			next, ok = v.leaves, true
		}
	}
	return next, ok
}
