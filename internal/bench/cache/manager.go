package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/server"
)

// Servers describes the VMs of a manager in this process: processes on this machine, or over
// mem servers in this process.
type Servers struct {
	Transport string
	Command   []string       // command of a server; empty: as in [allocator.LocalOptions]
	Menu      *menu.Menu     // VM types and prices of a simulated market; nil: no market
	Pinning   server.Pinning // of their threads
	// Apart gives them half of the processors that this process may use, and restricts this
	// process to the others until the manager is closed, like two machines.
	Apart bool
}

// Manager is a manager in this process.
type Manager struct {
	*manager.Embedded
	together func() error // ends Servers.Apart
}

// StartManager starts a manager in this process over servers and sets opts.Allocator. The
// manager changes no cache for its SLO, as what it has chosen is measured. The caller closes it.
func StartManager(ctx context.Context, servers Servers, opts manager.EmbedOptions) (_ *Manager, err error) {
	m := &Manager{together: func() error { return nil }}
	opts.SLOWatch = manager.Observe
	var serverCPUs []int
	if servers.Apart {
		if serverCPUs, m.together, err = apart(servers.Transport); err != nil {
			return nil, err
		}
	}
	if servers.Transport == mem.Name {
		opts.Allocator, err = allocator.NewInProcess(allocator.InProcessOptions{Menu: servers.Menu, Pinning: servers.Pinning, Logger: opts.Logger})
	} else {
		opts.Allocator, err = allocator.NewLocal(allocator.LocalOptions{
			Command: servers.Command, Transport: servers.Transport, Menu: servers.Menu, Pinning: servers.Pinning, CPUs: serverCPUs, Logger: opts.Logger,
		})
	}
	if err == nil {
		m.Embedded, err = manager.Embed(ctx, opts)
	}
	if err != nil {
		return nil, errors.Join(err, m.together())
	}
	return m, nil
}

// apart restricts this process to half of its processors and returns the others.
func apart(transport string) (others []int, together func() error, err error) {
	if transport == mem.Name {
		return nil, nil, fmt.Errorf("cachebench: servers over %s are in this process: they cannot have processors of their own", mem.Name)
	}
	mine, others, err := affinity.Halves()
	if err != nil {
		return nil, nil, err
	}
	together, err = affinity.Confine(mine)
	return others, together, err
}

// Close ends the manager and its VMs, and lifts the restriction of processors.
func (m *Manager) Close() error { return errors.Join(m.Embedded.Close(), m.together()) }
