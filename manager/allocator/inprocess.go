package allocator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/manager/node"
	"github.com/redykv/redykv/server"
)

// InProcessOptions configure an in-process allocator.
type InProcessOptions struct {
	// Memory is the maximum of all VMs' memory together, in bytes. Default: the machine's
	// memory.
	Memory uint64
	// Transport is the default of requests, and the transport of the manager's models.
	// Default: mem.
	Transport string
	// Menu and Market are as in [LocalOptions].
	Menu   *menu.Menu
	Market menu.Options
	// Pinning is as in [server.Options].
	Pinning server.Pinning
	// Logger receives messages for the operator. Default: slog.Default().
	Logger *slog.Logger
}

// InProcess launches VMs that are cache servers in this process, over any transport: for
// embedding, examples and tests. They lend the process's own memory, and end with it.
type InProcess struct {
	shop
	attachment

	opts InProcessOptions

	mu     sync.Mutex
	closed bool
	nodes  map[string]*node.Node
}

var _ Marketer = (*InProcess)(nil)

// NewInProcess returns an allocator for a manager's Options.
func NewInProcess(opts InProcessOptions) (*InProcess, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Transport == "" {
		opts.Transport = "mem"
	}
	if err := withinProcess(opts.Transport); err != nil {
		return nil, err
	}
	b, err := newBudget(opts.Memory)
	if err != nil {
		return nil, err
	}
	a := &InProcess{opts: opts, nodes: make(map[string]*node.Node)}
	kill := func(id string) { a.Kill(id) }
	a.shop, err = newShop(opts.Menu, opts.Market, b, marketEvents{host: a.manager, kill: kill, reclaim: a.Reclaim})
	if err != nil {
		return nil, fmt.Errorf("in-process allocator: %w", err)
	}
	return a, nil
}

func withinProcess(name string) error {
	if err := offered(name, transport.Names()); err != nil {
		return fmt.Errorf("in-process allocator: %w", err)
	}
	return nil
}

func (a *InProcess) CheckTransport(name string) error { return withinProcess(name) }

// Transport implements [Allocator].
func (a *InProcess) Transport() string { return a.opts.Transport }

// Launch implements [Allocator]. It registers the VM.
func (a *InProcess) Launch(_ context.Context, spec VMSpec) error {
	if err := withinProcess(spec.Transport); err != nil {
		return err
	}
	if err := a.buy(spec); err != nil {
		return err
	}
	n, err := node.Start(node.Options{ID: spec.ID, Memory: spec.Memory, Cores: spec.Cores, Transport: spec.Transport, Pinning: a.opts.Pinning, Logger: a.opts.Logger})
	if err != nil {
		a.giveBack(spec.ID, spec.Memory)
		return err
	}
	if !a.keep(n) {
		a.giveBack(spec.ID, spec.Memory)
		return errors.Join(errors.New("in-process allocator: closed"), n.Close())
	}
	if err := a.manager().Register(n.VM()); err != nil {
		return errors.Join(err, a.Terminate(context.Background(), spec.ID))
	}
	return nil
}

func (a *InProcess) keep(n *node.Node) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.nodes[n.VM().ID] = n
	}
	return !a.closed
}

// Terminate implements [Allocator].
func (a *InProcess) Terminate(_ context.Context, id string) error {
	a.mu.Lock()
	n := a.nodes[id]
	delete(a.nodes, id)
	a.mu.Unlock()
	if n == nil {
		return nil
	}
	err := n.Close()
	a.giveBack(id, n.VM().Memory)
	return err
}

// Kill ends a VM as a crash would, and reports its failure to the manager. It returns false
// if the VM is unknown.
func (a *InProcess) Kill(id string) bool {
	a.mu.Lock()
	_, ok := a.nodes[id]
	a.mu.Unlock()
	if ok {
		if err := a.Terminate(context.Background(), id); err != nil {
			a.opts.Logger.Warn("killed VM closed with an error", "vm", id, "err", err)
		}
		a.manager().Failed(id, "killed")
	}
	return ok
}

// Reclaim reports to the manager that a VM is taken back after the notice (R22). It returns
// false if the VM is unknown.
func (a *InProcess) Reclaim(id string, notice time.Duration) bool {
	a.mu.Lock()
	_, ok := a.nodes[id]
	a.mu.Unlock()
	if ok {
		a.manager().Reclaimed(id, time.Now().Add(notice), "reclaimed by the allocator")
	}
	return ok
}

// Close implements [Allocator].
func (a *InProcess) Close() error {
	a.mu.Lock()
	a.closed = true
	nodes := a.nodes
	a.nodes = make(map[string]*node.Node)
	a.mu.Unlock()
	a.close()
	var err error
	for id, n := range nodes {
		if e := n.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("VM %s: %w", id, e))
		}
		a.giveBack(id, n.VM().Memory)
	}
	return err
}
