package allocator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

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
	fleet[*node.Node]
	opts InProcessOptions
}

var (
	_ Marketer    = (*InProcess)(nil)
	_ Transporter = (*InProcess)(nil)
)

// NewInProcess returns an allocator for a manager's Options.
func NewInProcess(opts InProcessOptions) (*InProcess, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	opts.Transport = cmp.Or(opts.Transport, "mem")
	a := &InProcess{opts: opts}
	if err := a.CheckTransport(opts.Transport); err != nil {
		return nil, err
	}
	var err error
	a.vms = make(map[string]*node.Node)
	a.shop, err = newShop(opts.Memory, opts.Menu, opts.Market, marketEvents{a.manager, a.Kill, a.Reclaim})
	if err != nil {
		return nil, fmt.Errorf("in-process allocator: %w", err)
	}
	return a, nil
}

// CheckTransport implements [Transporter].
func (*InProcess) CheckTransport(name string) error {
	return checkTransport("in-process", name, transport.Names())
}

// Transport implements [Allocator].
func (a *InProcess) Transport() string { return a.opts.Transport }

// Launch implements [Allocator]. It registers the VM.
func (a *InProcess) Launch(_ context.Context, spec VMSpec) error {
	if err := a.CheckTransport(spec.Transport); err != nil {
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
		return errors.Join(errors.New("in-process allocator is closed"), n.Close())
	}
	if err := a.manager().Register(n.VM()); err != nil {
		return errors.Join(err, a.Terminate(context.Background(), spec.ID, "not registered"))
	}
	return nil
}

func (a *InProcess) keep(n *node.Node) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.vms[n.VM().ID] = n
	}
	return !a.closed
}

// Terminate implements [Allocator].
func (a *InProcess) Terminate(_ context.Context, id, _ string) error {
	a.mu.Lock()
	n := a.vms[id]
	delete(a.vms, id)
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
	_, ok := a.find(id)
	if ok {
		if err := a.Terminate(context.Background(), id, "the allocator closes"); err != nil {
			a.opts.Logger.Warn("killed VM closed with an error", "vm", id, "err", err)
		}
		a.manager().Failed(id, "killed")
	}
	return ok
}

// Close implements [Allocator].
func (a *InProcess) Close() error {
	a.mu.Lock()
	a.closed = true
	nodes := a.vms
	a.vms = make(map[string]*node.Node)
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
