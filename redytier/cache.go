package redytier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	filler      uint64       // random, identifies regionWriters that fill to servers
	epochs      *epoch.Table // of sessions with pending operations
	writeEpochs *epoch.Table // of sessions with pending writes
	deleted     atomic.Bool
	taken       atomic.Bool // another client has taken the cache up: see taken.go

	// The running task owns the fields from slo to moved: see controller.go and task.go.
	controller *controller
	slo        SLO
	leaving    []*grant // grants without regions, to be returned
	// allowed is what servers may allow beside the table's configuration, as connections of former ones may
	// be open. Zero: nothing.
	allowed    Configuration
	moved      moveStats     // since the last Settle
	change     atomic.Uint64 // number of the last Reallocate or Settle
	answered   atomic.Uint64 // of the last one that was answered
	unsettled  atomic.Bool   // memory is not returned, or the manager does not know the table
	background goroutines
	beat       atomic.Uint64 // of the clock for servers' answers: see liveness.go

	watcher *watcher
	windows windows  // that the manager gets
	clients *clients // execute Read and Write
	panics  atomic.Uint64

	mu          sync.Mutex                       // guards the fields below, up to ended
	known       identity                         // see recreate.go
	provider    fabric.Provider                  // set once, before the first endpoint
	endpoints   []*endpoint                      // of new sessions: the table's, and those to be added
	ports       map[fabric.Model]fabric.Provider // provider behind network models
	sessions    map[*Session]struct{}            // open sessions
	past        Metrics                          // counters of closed sessions
	pastFigures [2]figures                       // of closed sessions
	ended       bool                             // the last session closes the provider

	adopting  chan struct{} // has room for one: serializes adopted
	adoptions atomic.Uint64 // that have succeeded
	lease     atomic.Int64  // time.Duration, as last told; 0: none
	deleting  sync.Mutex    // serializes Delete and Detach, guards released
	released  bool          // deallocated at the manager, or left to another client
}

// observer is notified of what happens to the cache's memory. It must not block or call the
// cache.
type observer interface {
	// lost: the addresses answer ErrRegionUnavailable from now on.
	lost(at span)
	// restored: the addresses answer again when it returns, with zeros where there was no
	// copy.
	restored(at span)
	// settled: failed connections to a grant can have no effect there any more.
	settled()
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
func newCache(ctx context.Context, mgr Manager, id string, cfg Config, configuration Configuration, grants []*grant, provider fabric.Provider) (*Cache, error) {
	c := &Cache{
		filler: rand.Uint64(),
		known:  identity{id: id, linger: cfg.lingers, gone: id == ""}, mgr: mgr, cfg: cfg, slo: cfg.SLO, provider: provider, created: time.Now(),
		log:    cfg.Logger.With("component", "redytier"),
		epochs: epoch.New(), writeEpochs: epoch.New(),
		ports:    map[fabric.Model]fabric.Provider{},
		sessions: make(map[*Session]struct{}), adopting: make(chan struct{}, 1),
	}
	if id != "" {
		c.log = c.log.With("cache", id)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	t := newTable(cfg.Capacity, cfg.RegionSize, configuration)
	for _, g := range grants {
		t.endpoints = append(t.endpoints, newEndpoint(g, configuration))
	}
	places := assign(t.need(cfg.Capacity), t.endpoints)
	t.regions.resize(len(places))
	for _, f := range zeroed(places) {
		t.restore(f)
	}
	t.per = t.regions.len()
	c.endpoints = slices.Clone(t.endpoints)
	t.epoch, t.writeEpoch = c.epochs.Current(), c.writeEpochs.Current()
	c.table.Store(t)
	c.watcher = newWatcher(c)
	c.windows.began = c.created
	c.controller = startController(c)
	err := c.reach(ctx, t.endpoints)
	if err == nil {
		c.clients, err = newClients(c)
	}
	if err != nil {
		c.cancel()
		c.background.end()
		c.controller.stop()
		return nil, errors.Join(err, c.closeProvider())
	}
	c.watcher.running.Go(func() { c.watcher.deliver(cfg.OnEvent) })
	if id != "" {
		c.startWatching(id, cfg.lease)
	}
	c.background.Go(c.beats)
	c.background.Go(c.keepGrants)
	c.background.Go(c.measure)
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

// Err returns nil while the whole cache answers; otherwise ErrDeleted, ErrTaken, or
// ErrRegionUnavailable with the first lost VM that is not replaced yet.
func (c *Cache) Err() error {
	if c.deleted.Load() {
		return ErrDeleted
	}
	if c.taken.Load() {
		return ErrTaken
	}
	t := c.table.Load()
	if lost := t.lost(); len(lost) > 0 {
		return *t.regions.at(lost[0]).cause
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

// end ends everything that the cache does in this process, but for sessions, which their owners
// close. The caller holds deleting.
func (c *Cache) end() {
	if c.deleted.Swap(true) {
		return
	}
	c.cancel()
	c.changed()
	err := c.clients.stop()
	c.watcher.stop()
	c.background.end()
	c.controller.stop()
	if err = errors.Join(err, c.retire()); err != nil {
		c.log.Warn("closing the client threads", "err", err)
	}
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
	c.end()
	id, holder := c.held()
	if id == "" { // it was never allocated
		c.released = true
		return nil
	}
	existed, err := deallocated(ctx, c.mgr, id, holder)
	if err = c.heed(err); errors.Is(err, ErrTaken) {
		c.released = true
		return fmt.Errorf("redytier: delete cache %s: %w", id, err)
	}
	// Servers can take memory back that the manager does not know, or without it.
	late, cancel := finishing(ctx)
	defer cancel()
	c.disconnectFormer(late, nil)
	if err != nil || !existed {
		if lost := disconnectAll(late, append(c.table.Load().connected(), c.leaving...)); lost != nil {
			c.log.Warn("returning regions to the servers", "err", lost)
		}
	}
	if code := connect.CodeOf(err); err != nil && code != connect.CodeNotFound && code != connect.CodeAborted {
		return fmt.Errorf("redytier: delete cache %s: %w", id, err)
	}
	c.release()
	return nil
}

// release notes that the cache has ended. The caller holds deleting.
func (c *Cache) release() {
	c.released = true
	if c.cfg.FabricTLS != nil {
		c.cfg.control.CloseIdleConnections()
	}
}
