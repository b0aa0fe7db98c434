package redytier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/epoch"
	"github.com/redykv/redykv/internal/fabric"
)

// Cache is one Redy cache. Its methods are safe for concurrent use.
type Cache struct {
	mgr      Manager
	cfg      Config
	created  time.Time
	log      *slog.Logger
	observer atomic.Pointer[observer] // notified of lost and restored memory; nil: none

	ctx    context.Context // ends with Delete
	cancel context.CancelFunc

	// Read by sessions: see session_refresh.go.
	table       atomic.Pointer[table]
	epochs      *epoch.Table // of sessions with pending operations
	writeEpochs *epoch.Table // of sessions with pending writes
	deleted     atomic.Bool

	// Used by changes of the cache: see table_change.go and turn.go.
	tableMu    sync.Mutex  // guards changes of table
	turn       turn        // held by the running control operation
	slo        SLO         // guarded by the turn
	leaving    []*grant    // grants without regions, to be returned; guarded by the turn
	change     uint64      // number of the last Reallocate or Settle; guarded by the turn
	moved      moveStats   // since the last Settle; guarded by the turn
	unsettled  atomic.Bool // the manager does not know the current table
	moves      moves
	background goroutines
	beat       atomic.Uint64 // of the clock for servers' answers: see liveness.go

	watcher *watcher
	keeper  *keeper
	clients *clients // execute Read and Write
	panics  atomic.Uint64

	mu        sync.Mutex                       // guards the fields below, up to ended
	known     identity                         // see recreate.go
	provider  fabric.Provider                  // set once, before the first endpoint
	endpoints []*endpoint                      // of new sessions: the table's, and those to be added
	ports     map[fabric.Model]fabric.Provider // provider behind network models
	sessions  map[*Session]struct{}            // open sessions
	past      Metrics                          // counters of closed sessions
	ended     bool                             // the last session closes the provider

	deleting sync.Mutex // serializes Delete, guards released
	released bool       // deallocated at the manager
}

// observer is notified of what happens to the cache's memory. It must not block or call the
// cache.
type observer interface {
	// lost: the addresses answer ErrRegionUnavailable from now on.
	lost(at span)
	// restored: the addresses answer again when it returns, with zeros where there was no
	// copy.
	restored(at span)
}

// observe sets the cache's observer, before the memory is used.
func (c *Cache) observe(o observer) { c.observer.Store(&o) }

func (c *Cache) observing() observer {
	if o := c.observer.Load(); o != nil {
		return *o
	}
	return nil
}

// newCache returns a cache that owns provider and grants, which have exactly the regions
// of the capacity.
func newCache(mgr Manager, id string, cfg Config, configuration Configuration, grants []*grant, provider fabric.Provider) (*Cache, error) {
	c := &Cache{
		known: identity{id: id, gone: id == ""}, mgr: mgr, cfg: cfg, slo: cfg.SLO, provider: provider, created: time.Now(),
		log:    cfg.Logger.With("component", "redytier"),
		epochs: epoch.New(), writeEpochs: epoch.New(),
		ports:    map[fabric.Model]fabric.Provider{},
		sessions: make(map[*Session]struct{}),
	}
	if id != "" {
		c.log = c.log.With("cache", id)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	t := newTable(cfg.Capacity, cfg.RegionSize, configuration)
	for _, g := range grants {
		e := newEndpoint(g, configuration)
		t.endpoints = append(t.endpoints, e)
		for i := range g.tokens {
			t.regions = append(t.regions, region{endpoint: e, index: uint32(i)})
		}
	}
	t.per = len(t.regions)
	c.endpoints = slices.Clone(t.endpoints)
	t.epoch, t.writeEpoch = c.epochs.Current(), c.writeEpochs.Current()
	c.table.Store(t)
	c.keeper, c.watcher = &keeper{cache: c}, newWatcher(c)
	var err error
	if c.clients, err = newClients(c); err != nil {
		c.cancel()
		c.background.end()
		return nil, errors.Join(err, c.closeProvider())
	}
	c.watcher.running.Go(func() { c.watcher.deliver(cfg.OnEvent) })
	if id != "" {
		c.startWatching(id, cfg.lease)
	}
	c.background.Go(c.beats)
	return c, nil
}

// port returns the fabric behind the network model of a grant's VM. VMs with the same model
// share this host's port, and so its bandwidth.
func (c *Cache) port(g *grant) fabric.Provider {
	m := c.cfg.network.At(g.distance)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.ports[m]
	if p == nil {
		p = fabric.WithModel(c.provider, m)
		c.ports[m] = p
	}
	return p
}

// Capacity in bytes: addresses run from 0 to Capacity-1.
func (c *Cache) Capacity() int64 { return c.table.Load().capacity }

// RegionSize in bytes.
func (c *Cache) RegionSize() int64 { return c.table.Load().regionSize() }

// Configuration is the configuration of the data path.
func (c *Cache) Configuration() Configuration { return c.table.Load().configuration }

// Transport is the name of the fabric in use, or Config.Transport if the cache has not had
// memory yet.
func (c *Cache) Transport() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.provider == nil {
		return c.cfg.Transport
	}
	return c.provider.Name()
}

// Err returns nil while the whole cache answers; otherwise ErrDeleted, or
// ErrRegionUnavailable with the first lost VM that is not replaced yet.
func (c *Cache) Err() error {
	if c.deleted.Load() {
		return ErrDeleted
	}
	t := c.table.Load()
	if lost := t.lost(); len(lost) > 0 {
		return *t.regions[lost[0]].cause
	}
	return nil
}

// retire closes the provider of a deleted cache, or leaves that to the last session.
func (c *Cache) retire() error {
	c.mu.Lock()
	c.ended = true
	last := len(c.sessions) == 0
	c.mu.Unlock()
	if last {
		return c.closeProvider()
	}
	return nil
}

// Delete releases the cache's memory and VMs (R7). Pending and later requests end with
// ErrDeleted; sessions must still be closed by their owners. If the manager does not answer,
// the servers are told instead, an error is returned, and Delete may be called again. It
// waits for callbacks, so it must not be called from one.
func (c *Cache) Delete(ctx context.Context) error {
	c.deleting.Lock()
	defer c.deleting.Unlock()
	if c.released {
		return ErrDeleted
	}
	if !c.deleted.Swap(true) {
		c.cancel()
		c.changed()
		err := c.clients.stop()
		c.watcher.stop()
		c.keeper.tasks.end()
		c.background.end()
		_ = c.turn.acquire(context.Background(), &claim{}, true) // waits for the running operation; no other begins
		if err = errors.Join(err, c.retire()); err != nil {
			c.log.Warn("closing the client threads", "err", err)
		}
	}
	id := c.ID()
	if id == "" { // it was never allocated
		c.released = true
		return nil
	}
	err := deallocate(ctx, c.mgr, id)
	if err != nil {
		// Servers can take their memory back without the manager.
		if lost := disconnectAll(ctx, c.table.Load().grants()); lost != nil {
			c.log.Warn("returning regions to the servers", "err", lost)
		}
	}
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		return fmt.Errorf("redytier: delete cache %s: %w", id, err)
	}
	c.released = true
	if c.cfg.FabricTLS != nil {
		c.cfg.control.CloseIdleConnections()
	}
	return nil
}
