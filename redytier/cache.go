package redytier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/fabric"
)

// Cache is one Redy cache. Its methods are safe for concurrent use.
type Cache struct {
	id       string
	mgr      Manager
	config   Configuration
	table    *table
	provider fabric.Provider
	ports    map[*vm]fabric.Provider // provider, behind the network on the way to each VM
	log      *slog.Logger

	// epoch grows with every change that sessions have to notice: a VM lost, or
	// the cache deleted. Sessions compare it with the one they know.
	epoch   atomic.Uint64
	deleted atomic.Bool
	panics  atomic.Uint64

	watcher *watcher
	client  *clientThread // serves Read and Write

	mu       sync.Mutex
	sessions map[*Session]struct{} // open ones
	past     counters              // of closed sessions

	deleting sync.Mutex // held by Delete
	released bool       // the manager has the VMs back
}

// newCache takes over provider.
func newCache(mgr Manager, id string, cfg Config, configuration Configuration, t *table, provider fabric.Provider) (*Cache, error) {
	c := &Cache{
		id: id, mgr: mgr, config: configuration, table: t, provider: provider,
		log:      cfg.Logger.With("component", "redytier", "cache", id),
		sessions: make(map[*Session]struct{}),
	}
	c.ports = ports(provider, cfg.network, t.vms)
	c.watcher = newWatcher(c)
	session, err := c.NewSession(clientDepth)
	if err != nil {
		return nil, errors.Join(err, provider.Close())
	}
	c.client = startClientThread(c, session)
	c.watcher.start(cfg.OnEvent)
	return c, nil
}

// ports puts the network before a provider, for each VM as its distance asks.
// VMs behind the same model share this host's port, and so its bandwidth.
func ports(provider fabric.Provider, network fabric.Network, vms []*vm) map[*vm]fabric.Provider {
	byModel := map[fabric.Model]fabric.Provider{}
	byVM := map[*vm]fabric.Provider{}
	for _, v := range vms {
		m := network.At(v.distance)
		if byModel[m] == nil {
			byModel[m] = fabric.WithModel(provider, m)
		}
		byVM[v] = byModel[m]
	}
	return byVM
}

// ID is the manager's name for the cache.
func (c *Cache) ID() string { return c.id }

// Capacity in bytes: addresses run from 0 to Capacity-1.
func (c *Cache) Capacity() int64 { return c.table.capacity }

// RegionSize in bytes.
func (c *Cache) RegionSize() int64 { return c.table.mask + 1 }

// Configuration is what the data path runs with.
func (c *Cache) Configuration() Configuration { return c.config }

// Transport is the name of the fabric in use.
func (c *Cache) Transport() string { return c.provider.Name() }

// Err is nil while the whole cache answers; else ErrDeleted, or
// ErrRegionUnavailable with the first VM that was lost.
func (c *Cache) Err() error {
	if c.deleted.Load() {
		return ErrDeleted
	}
	for _, v := range c.table.vms {
		if err := v.lost.Load(); err != nil {
			return fmt.Errorf("%w: VM %s: %w", ErrRegionUnavailable, v.id, *err)
		}
	}
	return nil
}

// lose marks a VM's regions as lost, for good: what they held is gone, and
// nothing is read from them any more (A46). It does so once.
func (c *Cache) lose(v *vm, cause error) {
	if !v.lost.CompareAndSwap(nil, &cause) {
		return
	}
	from, to := c.table.span(v)
	c.log.Warn("VM lost with its regions", "vm", v.id, "from", from, "to", to, "err", cause)
	c.changed()
	c.watcher.report(Event{Kind: VMLost, VM: v.id, From: from, To: to, Err: cause})
}

// changed makes every session look at the cache's state.
func (c *Cache) changed() {
	c.epoch.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		s.wake()
	}
}

// Delete releases the cache's memory and VMs (R7). Requests under way and later
// ones end with ErrDeleted; sessions are still to be closed by their owners.
// Where the manager cannot be told, the servers are told instead, the error says
// so, and Delete may be called again. It waits for callbacks, so it must not be called from one.
func (c *Cache) Delete(ctx context.Context) error {
	c.deleting.Lock()
	defer c.deleting.Unlock()
	if c.released {
		return ErrDeleted
	}
	if !c.deleted.Swap(true) {
		c.changed()
		err := c.client.stop()
		c.watcher.stop()
		if err != nil {
			c.log.Warn("closing the client thread", "err", err)
		}
	}
	err := deallocate(ctx, c.mgr, c.id)
	if err != nil {
		// The servers can take their memory back without the manager.
		for _, v := range c.table.vms {
			if lost := disconnect(ctx, c.id, v); lost != nil && v.lost.Load() == nil {
				c.log.Warn("a server keeps its regions for now", "err", lost)
			}
		}
	}
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		return fmt.Errorf("redytier: delete cache %s: %w", c.id, err)
	}
	c.released = true
	return nil
}
