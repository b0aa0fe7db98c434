package redytier

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
)

// This file allocates a cache again that its manager does not know any more: its lease ended
// while it could not be renewed, it was deallocated, or the manager was started without its
// state and has not adopted it (adopt.go). A cache that had no memory when it was created
// (Config.Late) gets its first memory in the same way.
//
// When some of its memory is lost, the controller allocates all of it under a new id. Regions that
// still answer move there with their bytes. Sessions, addresses and configuration stay.

var (
	errForgotten = errors.New("the manager does not know the cache")
	errNoMemory  = errors.New("the cache has no memory yet")
)

// identity is the manager's view of the cache, guarded by Cache.mu.
type identity struct {
	id     string
	holder uint64        // number of this client, for the manager
	linger time.Duration // as granted
	gone   bool          // the manager does not know it
	former []*grant      // of former ids, which servers may still lend
}

// ID is the manager's name for the cache. It changes when the cache is allocated again
// because the manager does not know it, and is empty until it is first allocated.
func (c *Cache) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.id
}

// gone reports whether the manager does not know the cache.
func (c *Cache) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.gone
}

// forgotten notes that the manager does not know the cache by an id. A device's cache loses
// all of its memory at once, since the log has the next tier. Another cache uses its memory
// until some of it is lost.
func (c *Cache) forgotten(id string) {
	c.mu.Lock()
	if id != c.known.id || c.known.gone {
		c.mu.Unlock()
		return
	}
	c.known.gone = true
	for _, e := range c.endpoints {
		if !slices.Contains(c.known.former, e.grant) {
			c.known.former = append(c.known.former, e.grant)
		}
	}
	former := slices.Clone(c.known.former)
	c.mu.Unlock()
	c.watcher.report(Event{Kind: CacheDeleted, To: c.Capacity()})
	if c.observing() == nil {
		return
	}
	c.controller.do(func() {
		for _, g := range former {
			c.controller.lose(g, errForgotten, unavailable(g, errForgotten))
		}
	})
}

// recreate allocates the whole cache under a new id, and connects every session. If it
// fails, nothing stays allocated.
func (c *Cache) recreate(ctx context.Context) (_ []*endpoint, err error) {
	t := c.table.Load()
	wanted := t.configuration
	if t.per == 0 { // never allocated: no configuration was chosen
		wanted = c.cfg.Configuration
	}
	c.disconnectFormer(ctx, t.grants())
	m, err := allocate(ctx, c.mgr, &c.cfg, &managerv1.AllocateRequest{
		Capacity: uint64(t.capacity), Slo: c.slo.proto(), DurationSeconds: c.durationLeft(),
		Configuration: wanted.proto(), RegionSize: uint64(t.regionSize()), Transport: c.Transport(),
		CloudRegion: c.cfg.CloudRegion, Client: c.cfg.client(), LingerMs: c.cfg.Linger.Milliseconds(),
	})
	if err != nil {
		return nil, fmt.Errorf("allocate: %w", err)
	}
	var grants []*grant
	defer func() {
		if err != nil {
			ctx, cancel := finishing(ctx)
			defer cancel()
			err = errors.Join(err, disconnectAll(ctx, grants), deallocate(ctx, c.mgr, m.CacheId, 0))
		}
	}()
	configuration := configurationOf(m.Configuration)
	if err := errors.Join(c.cfg.allows(configuration, c.slo.RecordSize), checkGrants(m.Grants, t.regions.len())); err != nil {
		return nil, err
	}
	if m.CacheId == "" || m.RegionSize != uint64(t.regionSize()) {
		return nil, fmt.Errorf("the manager answers with cache %q and region size %d, want %d", m.CacheId, m.RegionSize, t.regionSize())
	}
	lease := time.Duration(m.LeaseMs) * time.Millisecond
	if grants, err = connectRenewing(ctx, c.mgr, m.CacheId, lease, &c.cfg, m.Grants, configuration, t.regions.len()); err != nil {
		return nil, err
	}
	name, err := transportOf(grants, c.Transport())
	if err != nil {
		return nil, err
	}
	if err := c.openTransport(name); err != nil {
		return nil, err
	}
	endpoints := make([]*endpoint, len(grants))
	for i, g := range grants {
		endpoints[i] = newEndpoint(g, configuration)
	}
	if err := c.addEndpoints(ctx, endpoints); err != nil {
		return nil, err
	}
	c.update(func(t *table) { t.configuration, t.per = configuration, t.regions.len() })
	c.mu.Lock()
	c.known = identity{id: m.CacheId, linger: time.Duration(m.LingerMs) * time.Millisecond, former: c.known.former}
	c.mu.Unlock()
	c.answered.Store(0)
	c.log.Info("the cache is allocated again", "id", m.CacheId, "capacity", t.capacity)
	c.startWatching(m.CacheId, lease)
	reclaimed := c.controller.reclaiming()
	for _, s := range m.Grants { // a new manager may not know earlier notices
		if deadline, ok := reclaimed[s.GetVm().GetId()]; ok {
			c.controller.do(func() { c.controller.duties.reclaimed(s.GetVm().GetId(), deadline) })
		}
	}
	return endpoints, nil
}

// durationLeft returns the seconds for which the cache is expected to be needed; 0: until it is deleted.
func (c *Cache) durationLeft() int64 {
	left := c.cfg.Duration - time.Since(c.created)
	if left < time.Second { // it is needed for longer than was expected
		left = c.cfg.Duration
	}
	return int64(left / time.Second)
}

// startWatching follows the manager's events for a cache id, and renews its lease.
func (c *Cache) startWatching(id string, lease time.Duration) {
	holder := c.holder()
	c.lease.Store(int64(lease))
	c.background.Go(func() { c.watcher.watch(c.ctx, id, holder) })
	c.background.Go(func() { c.watcher.renew(c.ctx, id, holder, lease) })
}

// disconnectFormer returns the grants of former ids, except those that are used, to their servers: a
// manager that lost its state does not know them. Servers that do not answer are asked again
// when the cache is next allocated, or deleted.
func (c *Cache) disconnectFormer(ctx context.Context, used []*grant) {
	c.mu.Lock()
	former := slices.DeleteFunc(slices.Clone(c.known.former), func(g *grant) bool { return slices.Contains(used, g) })
	c.mu.Unlock()
	var asking sync.WaitGroup
	for _, g := range former {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, c.cfg.ServerTimeout)
			defer cancel()
			_, err := g.control().Disconnect(ctx, connect.NewRequest(g.disconnection()))
			if err != nil && !connect.IsWireError(err) {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.known.former = slices.DeleteFunc(c.known.former, func(o *grant) bool { return o == g })
		})
	}
	asking.Wait()
}

// openTransport opens the cache's provider if it has none.
func (c *Cache) openTransport(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.provider != nil {
		return nil
	}
	p, err := c.cfg.open(name)
	if err == nil {
		c.provider = p
	}
	return err
}

// open opens a provider with the options of the configuration.
func (c *Config) open(name string) (fabric.Provider, error) {
	p, err := transport.OpenWith(name, transport.Options{TLS: c.FabricTLS, Silence: c.ServerTimeout})
	if err == nil && c.wrap != nil {
		p = c.wrap(p)
	}
	return p, err
}

// closeProvider closes the cache's provider, if there is one.
func (c *Cache) closeProvider() error {
	c.mu.Lock()
	p := c.provider
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Close()
}

// serverError is a cache server's refusal of a call.
type serverError struct{ error }

func (e serverError) Unwrap() error { return e.error }

// isTemporary reports whether creating a cache may succeed later without intervention: the
// manager does not answer, VMs lack memory or do not answer, or another process answers at a
// VM's address before the manager knows.
func isTemporary(err error) bool {
	if isDistrust(err) {
		return false
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeFailedPrecondition, connect.CodeNotFound:
		return errors.As(err, new(serverError))
	case connect.CodeInvalidArgument, connect.CodeUnimplemented:
		return false
	}
	return true
}

// isDistrust reports whether one side of a connection does not trust the other, or only one side
// has TLS.
func isDistrust(err error) bool {
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var plain tls.RecordHeaderError
	return errors.As(err, &certificate) || errors.As(err, &alert) || errors.As(err, &plain)
}

// createLate returns a cache without memory.
func createLate(mgr Manager, cfg Config, cause error) (*Cache, error) {
	c, err := newCache(context.Background(), mgr, "", cfg, Configuration{ClientThreads: 1, BatchSize: 1, QueueDepth: 1}, nil, nil)
	if err != nil {
		return nil, err
	}
	none := fmt.Errorf("%w: %w: %w", ErrRegionUnavailable, errNoMemory, cause)
	c.update(func(t *table) {
		t.regions.resize(t.need(t.capacity))
		for i := range t.regions.len() {
			t.regions.edit(i).lack(&none, cfg.File == "" && cfg.Recover == nil)
		}
		if cfg.File != "" {
			t.fromFile()
		}
	})
	c.log.Warn("the cache has no memory yet: it is allocated as soon as possible", "err", cause)
	c.controller.do(func() { c.controller.duties.lost() })
	return c, nil
}
