// Package allocator launches VMs for a manager: [Local] as processes of this machine,
// [InProcess] as cache servers in this process. Both sell either VMs of any size for
// nothing, or the types of a simulated market (package menu), within a memory limit.
//
// A new allocator implements [Allocator]; [Restorer] if its VMs outlive the manager's
// process, [Marketer] if it has a simulated market, [Bounded] if all its VMs share a memory
// limit, [Transporter] if its VMs do not have all transports. It needs nothing of this module
// but the packages below manager.
package allocator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/manager/plan"
)

// Allocator launches and terminates VMs (3.2, A32). A launched VM serves one cache and is
// terminated with it. All methods are safe for concurrent use.
type Allocator interface {
	// Transport returns the transport of VMs for requests that name none.
	Transport() string
	// Attach sets the allocator's manager. It is called once, before all other methods.
	Attach(host Host)
	// Offers lists the VM types that Launch can start now in a cloud region, their prices,
	// and their distances from a client's machine. An empty region is the default one; an
	// empty or unknown machine is somewhere. A type whose VMs have any size is Fitted. The
	// error for an unknown region is a [*menu.RegionError].
	Offers(ctx context.Context, region, client string) ([]plan.Offer, error)
	// Launch starts a VM, or begins to: the VM has the manager's launch timeout to register,
	// which does not run while [Host].Waiting has a reason. After an error there is no VM, and
	// its cache's request fails. A manager that was restarted may launch a VM again. Errors are
	// a [*api.CapacityError] for too little memory, [menu.ErrSoldOut] if another offer is to be
	// tried, and [ErrTransport].
	Launch(ctx context.Context, spec VMSpec) error
	// Terminate ends a VM and returns when its memory is free. An unknown id is no error. why
	// is for people.
	Terminate(ctx context.Context, id, why string) error
	// Close terminates all VMs, except those that outlive the process. Launch fails
	// afterwards.
	Close() error
}

// Restorer is an [Allocator] whose VMs outlive the process that launched them.
type Restorer interface {
	Allocator
	// Restore takes over the VMs that an earlier process launched. It is called when the
	// manager begins to lead, perhaps again. It returns those that still run of the VMs that
	// caches have, lent, and of those that none has, idle, and terminates all others. The epoch is
	// higher than that of all earlier leaders. When Restore has returned, their calls change
	// nothing that this leader has, also those that are under way in other processes: Launch and
	// Terminate of theirs fail with [ErrFenced], or what they launch is terminated. No earlier
	// leader calls Terminate for a lent VM: the catalog has it that none of them may.
	Restore(ctx context.Context, epoch uint64, lent, idle []string) (running []string, err error)
}

// ErrFenced reports a call for a leader whose VMs a later leader has taken over.
var ErrFenced = errors.New("a later leader has it")

// Bounded is an [Allocator] with a memory limit of all its VMs together.
type Bounded interface {
	Allocator
	// Room returns how much memory is left, in bytes.
	Room() uint64
}

// Transporter is an [Allocator] whose VMs do not have all transports.
type Transporter interface {
	Allocator
	// CheckTransport returns an [ErrTransport] for a transport that no VM can have. It is
	// called before VMs are chosen.
	CheckTransport(name string) error
}

// ErrTransport reports a transport for which there are no VMs or models.
var ErrTransport = errors.New("transport not offered")

// checkTransport reports a transport that is not among the known ones.
func checkTransport(allocator, name string, known []string) error {
	if !slices.Contains(known, name) {
		return fmt.Errorf("%s allocator: %w: %.40q: want one of %s", allocator, ErrTransport, name, strings.Join(known, ", "))
	}
	return nil
}

// VMSpec describes a VM to launch.
type VMSpec struct {
	ID        string    // with which it must register
	Kind      menu.Kind // of an offer; no type: a VM of any size
	Memory    uint64    // bytes
	Cores     uint32    // server threads; 0: one-sided access only
	Transport string
	Price     plan.Price // as offered
	Cache     string     // id of the cache that it is launched for; empty: a warm pool
	Client    string     // machine of the cache's client; empty: unknown
}

// Place is where a VM runs, by names of its provider.
type Place struct {
	Machine  string // such as a node of Kubernetes
	Name     string // of the VM there, such as a pod's namespace/name
	Distance uint32 // number of switches to VMSpec.Client; 0: unknown
}

// Host is an allocator's view of its manager.
type Host interface {
	// URL returns the URL of the manager's control API, or those of all managers, separated by
	// commas; empty while it is not served.
	URL() string
	// Credentials returns the credentials of a VM's server, for the manager.
	Credentials(vm string) access.Credentials
	// Catalog returns the identity of the manager's catalog: VMs that a manager with another
	// one has launched are not this one's to terminate.
	Catalog() string
	// Register registers a launched VM, for allocators whose VMs do not call the manager
	// themselves. Such a VM sends no heartbeats.
	Register(vm node.VM) error
	// Waiting reports why a launched VM does not start yet, for as long as that may take, such
	// as for lack of memory. Clients are told the reason. Empty: it starts.
	Waiting(id, reason string)
	// Placed reports where a launched VM runs or will run. A VM at a distance where the SLO of
	// its cache is not met is terminated, and the cache's VMs are chosen again, from new Offers.
	Placed(id string, at Place)
	// Failed reports that a VM has failed. It may be called more than once.
	Failed(id, reason string)
	// Unreachable reports that the provider does not reach a VM's machine, which may run
	// nevertheless. The VM fails if its server sends no heartbeats either. The report is
	// repeated for as long as it holds.
	Unreachable(id, reason string)
	// Reclaimed reports that a VM is taken back at a deadline. Its caches are told at once
	// (R22), and the manager terminates it at the deadline. Of several calls, the earliest
	// deadline holds.
	Reclaimed(id string, deadline time.Time, reason string)
	// OffersChanged reports that an offer has become cheaper or available again (R30).
	OffersChanged()
}

// attachment holds an allocator's manager. A market may call before Attach.
type attachment struct{ host atomic.Pointer[Host] }

// Attach implements [Allocator].
func (a *attachment) Attach(h Host) { a.host.Store(&h) }

// manager returns nil before Attach.
func (a *attachment) manager() Host {
	if h := a.host.Load(); h != nil {
		return *h
	}
	return nil
}

// fleet holds an allocator's running VMs, a V for each.
type fleet[V any] struct {
	shop
	attachment

	mu     sync.Mutex // guards closed and vms
	closed bool
	vms    map[string]V // by id
}

func (f *fleet[V]) find(id string) (v V, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, ok = f.vms[id]
	return v, ok
}

// known lists the VMs.
func (f *fleet[V]) known() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.vms))
}

// Reclaim reports to the manager that a VM is taken back after the notice (R22). It returns
// false if the VM is unknown.
func (f *fleet[V]) Reclaim(id string, notice time.Duration) bool {
	_, ok := f.find(id)
	if ok {
		f.manager().Reclaimed(id, time.Now().Add(notice), "reclaimed by the allocator")
	}
	return ok
}

// budget counts the use of a limited amount of memory.
type budget struct {
	what  string
	limit uint64

	mu   sync.Mutex // guards used
	used uint64
}

// take reserves n bytes or returns an *api.CapacityError.
func (b *budget) take(n uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if free := b.limit - min(b.limit, b.used); n > free {
		return &api.CapacityError{What: b.what, Asked: n, Available: free}
	}
	b.used += n
	return nil
}

// hold reserves n bytes that are already in use, even above the limit.
func (b *budget) hold(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
}

func (b *budget) free() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit - min(b.limit, b.used)
}

func (b *budget) give(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

// newBudget returns a budget of limit bytes; 0 is the machine's memory, and more than that
// is an error.
func newBudget(limit uint64) (*budget, error) {
	total := node.MachineMemory()
	if limit == 0 {
		return &budget{what: "memory of this machine", limit: total}, nil
	}
	if limit > total {
		return nil, &api.CapacityError{What: "memory of this machine", Asked: limit, Available: total}
	}
	return &budget{what: "memory limit of the allocator", limit: limit}, nil
}
