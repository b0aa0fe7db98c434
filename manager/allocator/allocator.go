package allocator

import (
	"context"
	"errors"
	"fmt"
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

// Allocator is whatever provides VMs (3.2, A32). A VM that it launches serves
// one cache and is terminated with it. All methods are safe for concurrent use.
type Allocator interface {
	// Transport is the transport of VMs launched for requests that name none.
	Transport() string
	// Attach gives the allocator its manager, once, before anything else.
	Attach(host Host)
	// Offers lists the VM types that Launch can start now in a cloud region, and what
	// they cost; empty is the allocator's own region. A type whose VMs are made to
	// measure is Fitted. The error is a [*menu.RegionError] for a region that there is
	// not.
	Offers(ctx context.Context, region string) ([]plan.Offer, error)
	// Launch starts a VM. The VM is usable when it has registered itself with
	// host; the manager waits for that, until ctx ends. An error leaves nothing
	// behind. A [*api.CapacityError] says that there is no room, [ErrTransport]
	// that spec's transport is not to be had.
	Launch(ctx context.Context, spec VMSpec) error
	// Terminate ends a VM and returns when its memory is free again. An unknown
	// id is no error: the VM is gone.
	Terminate(ctx context.Context, id string) error
	// Close terminates every VM; Launch fails afterwards.
	Close() error
}

// Restorer is an [Allocator] whose VMs outlive the process that launched them.
type Restorer interface {
	Allocator
	// Restore takes up what an earlier process has launched, once, after Attach and
	// before anything else. The VMs of wanted that still run are the allocator's
	// again, and returned; all others are ended.
	Restore(ctx context.Context, wanted []string) (running []string, err error)
}

// ErrTransport says that an allocator has no VMs of the transport asked for.
var ErrTransport = errors.New("transport not offered")

// offered refuses a transport that is none of those known.
func offered(name string, known []string) error {
	if !slices.Contains(known, name) {
		return fmt.Errorf("%w: %.40q: want one of %s", ErrTransport, name, strings.Join(known, ", "))
	}
	return nil
}

// VMSpec is what a launched VM has to be.
type VMSpec struct {
	ID        string    // the id that it must register with
	Kind      menu.Kind // as Offers has it; no type: made to measure
	Memory    uint64    // bytes
	Cores     uint32    // server threads; 0: one-sided only
	Transport string
}

// Host is what a manager offers to its allocator.
type Host interface {
	// URL is where servers reach the manager; empty while it is not served.
	URL() string
	// Credentials is what the server of a VM shows the manager, and knows it by.
	Credentials(vm string) access.Credentials
	// Register announces a launched VM that is ready, for allocators whose VMs
	// do not call the manager themselves. No heartbeat is expected of it.
	Register(vm node.VM) error
	// Failed says that a VM is gone. It may be called more than once.
	Failed(id, reason string)
	// Reclaimed says that a VM will be gone at a deadline, of which its caches are
	// told at once (R22). When the time is up the manager terminates it. It may be
	// called more than once: the earliest deadline holds.
	Reclaimed(id string, deadline time.Time, reason string)
	// OffersChanged says that something has become cheaper, or is to be had again, so
	// that nobody has to ask all the time (R30).
	OffersChanged()
}

// attachment is an allocator's manager. A market may ask for it before there is one.
type attachment struct{ host atomic.Pointer[Host] }

// Attach implements [Allocator].
func (a *attachment) Attach(h Host) { a.host.Store(&h) }

// manager is nil before Attach.
func (a *attachment) manager() Host {
	if h := a.host.Load(); h != nil {
		return *h
	}
	return nil
}

// budget shares out a fixed amount of memory.
type budget struct {
	what  string
	limit uint64

	mu   sync.Mutex
	used uint64
}

// take reserves n bytes or returns a *api.CapacityError.
func (b *budget) take(n uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if free := b.limit - min(b.limit, b.used); n > free {
		return &api.CapacityError{What: b.what, Asked: n, Available: free}
	}
	b.used += n
	return nil
}

// hold reserves n bytes that are in use already, even beyond the limit.
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

// newBudget returns a budget of limit bytes, or of the machine's memory where
// limit is 0. More than the machine has is refused.
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
