package cachebench

import (
	"context"

	"github.com/redykv/redykv/internal/fabric/mem"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/menu"
	"github.com/redykv/redykv/server"
)

// StartManager starts a manager in this process whose VMs are processes of this machine
// that run command, or over mem in this process; an empty command is as in
// [manager.LocalOptions]. With a menu they are sold by a market. Their threads are pinned
// as pinning says. The caller closes it.
func StartManager(ctx context.Context, transport string, command []string, m *menu.Menu, pinning server.Pinning, opts manager.EmbedOptions) (_ *manager.Embedded, err error) {
	if transport == mem.Name {
		opts.Allocator, err = manager.NewInProcessAllocator(manager.InProcessOptions{Menu: m, Pinning: pinning, Logger: opts.Logger})
	} else {
		opts.Allocator, err = manager.NewLocalAllocator(manager.LocalOptions{Command: command, Transport: transport, Menu: m, Pinning: pinning, Logger: opts.Logger})
	}
	if err != nil {
		return nil, err
	}
	return manager.Embed(ctx, opts)
}
