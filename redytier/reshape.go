package redytier

import (
	"context"
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// ErrFixed is what [Cache.Reshape] of a cache under a [Device] always returns: the log's
// ring is laid out once. For another capacity or SLO, close the device and open one with
// another Config.
var ErrFixed = errors.New("redytier: the cache of a device keeps its capacity and SLO: close the device, and open one with others")

// Reshape changes the cache's capacity and SLO (R6). With the SLO that it has, the
// cache grows or shrinks where it is: what is cut off is gone, what is added is
// zeros (R71, R72); if it grows, and all of it costs less elsewhere, as in one larger VM, it
// moves there (R74). With another, the manager finds other VMs and another
// configuration, and the regions move there (R70). Requests go on; sessions find the
// new capacity with their next one, and what they have under way beyond it ends
// with ErrOutOfRange at the latest. A Reshape that fails, as where memory of the cache is
// lost meanwhile, changes nothing (R76). It gives way to a VM that is reclaimed, which is
// left first: what has been done is undone, and begun again by itself. That of a
// cache under a [Device] always fails, with [ErrFixed]. It
// may wait for callbacks, so it must not be called from one.
func (c *Cache) Reshape(ctx context.Context, capacity int64, slo SLO) error {
	if capacity < MinRegionSize || capacity > maxCapacity {
		return fmt.Errorf("redytier: reshape: capacity %d, want %d to %d", capacity, MinRegionSize, maxCapacity)
	}
	if err := checkRegionSize(c.RegionSize(), capacity); err != nil {
		return fmt.Errorf("redytier: reshape: %w", err)
	}
	if err := slo.check(); err != nil {
		return fmt.Errorf("redytier: reshape: %w", err)
	}
	if c.observing() != nil {
		return fmt.Errorf("redytier: reshape: %w", ErrFixed)
	}
	if err := c.requested(ctx, func(ctx context.Context) error { return c.reshape(ctx, capacity, slo) }); err != nil {
		return fmt.Errorf("redytier: reshape to %d bytes: %w", capacity, err)
	}
	return nil
}

func (c *Cache) reshape(ctx context.Context, capacity int64, slo SLO) error {
	if err := c.Err(); err != nil {
		return err
	}
	var err error
	switch now := c.Capacity(); {
	case slo != c.slo:
		err = c.moveAll(ctx, capacity, slo)
	case capacity > now:
		err = c.grow(ctx, capacity)
	case capacity < now:
		err = c.shrink(ctx, capacity)
	}
	if err != nil {
		err = errors.Join(err, c.Err()) // what was lost meanwhile, which this may have given way to
	}
	return err
}

// shrink cuts the table off, and gives back what is not used any more once nothing
// is under way there.
func (c *Cache) shrink(ctx context.Context, capacity int64) error {
	c.update(func(t *table) { t.resize(t.need(capacity), capacity) })
	if err := c.dropIdleGrants(ctx); err != nil {
		// The capacity is what it is; what is left over is given back next time.
		c.log.Warn("memory that was cut off is not given back", "err", err)
		return nil
	}
	c.releaseUnused(ctx)
	return nil
}

// releaseUnused releases the last regions of grants that the table does not use. It does so
// even if ctx has ended.
func (c *Cache) releaseUnused(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlTimeout)
	defer cancel()
	t := c.table.Load()
	released := false
	for _, g := range t.grants() {
		keep := uint32(0)
		for _, i := range t.on(g) {
			keep = max(keep, t.regions[i].index+1)
		}
		if keep == g.regions.Load() {
			continue
		}
		if err := g.release(ctx, keep); err != nil {
			c.log.Warn("a server keeps regions that were cut off", "err", err)
			continue
		}
		released = true
	}
	if released {
		c.settle(ctx)
	}
}

// grow adds zeros at the end: first those of the last region, then further regions. Where
// it is cheaper to have all of them elsewhere, in one larger VM, the cache moves (R74).
func (c *Cache) grow(ctx context.Context, capacity int64) error {
	t := c.table.Load()
	if err := c.clearEnd(ctx, min(capacity, int64(len(t.regions))<<t.shift)); err != nil {
		return err
	}
	more := t.need(capacity) - len(t.regions)
	var endpoints []*endpoint
	if more > 0 {
		var err error
		endpoints, _, err = c.reallocate(ctx, &managerv1.ReallocateRequest{
			CacheId: c.ID(), Regions: uint32(more), Whole: uint32(t.need(capacity)), PreferPresent: true, Client: c.cfg.client(),
		})
		if err != nil {
			return err
		}
		if len(assign(t.need(capacity), endpoints)) > more {
			return c.moveTo(ctx, endpoints, capacity, c.slo, t.configuration)
		}
	}
	places := assign(more, endpoints)
	var err error
	c.update(func(t *table) {
		if err = alive(endpoints); err != nil {
			return
		}
		first := len(t.regions)
		t.resize(t.need(capacity), capacity)
		for _, p := range places {
			p.region += first
			t.replace(p)
		}
	})
	if err != nil {
		return errors.Join(err, c.dropIdleGrants(ctx))
	}
	c.settle(ctx)
	return nil
}

// alive is nil unless a endpoint's memory is lost.
func alive(endpoints []*endpoint) error {
	for _, l := range endpoints {
		if cause := l.grant.lost.Load(); cause != nil {
			return unavailable(l.grant, *cause)
		}
	}
	return nil
}

// clearEnd makes zeros of the last region's bytes from the capacity to a higher one:
// they can have been cut off before, and what is under way there has to end first.
func (c *Cache) clearEnd(ctx context.Context, to int64) (err error) {
	t := c.table.Load()
	if to <= t.capacity {
		return nil
	}
	last := &t.regions[len(t.regions)-1]
	if last.endpoint == nil {
		return *last.cause
	}
	if err := c.quiesce(ctx, last.endpoint); err != nil {
		return err
	}
	p, err := c.openRegionWriter(ctx, last.endpoint.grant)
	if err != nil {
		return err
	}
	err = p.fill(ctx, last.index, t.capacity&t.mask, to-t.capacity, zero)
	return errors.Join(err, p.close())
}

// moveAll moves the whole cache to VMs that meet another SLO.
func (c *Cache) moveAll(ctx context.Context, capacity int64, slo SLO) error {
	t := c.table.Load()
	if err := c.clearEnd(ctx, min(capacity, int64(len(t.regions))<<t.shift)); err != nil {
		return err
	}
	endpoints, configuration, err := c.reallocate(ctx, &managerv1.ReallocateRequest{
		CacheId: c.ID(), Regions: uint32(t.need(capacity)), Slo: slo.proto(), Client: c.cfg.client(),
	})
	if err != nil {
		return err
	}
	return c.moveTo(ctx, endpoints, capacity, slo, configuration)
}

// moveTo moves the whole cache over endpoints, which have room for all of it. Until it is
// there, the old VMs go on serving and every write goes to both (A38).
func (c *Cache) moveTo(ctx context.Context, endpoints []*endpoint, capacity int64, slo SLO, configuration Configuration) error {
	t := c.table.Load()
	places := assign(t.need(capacity), endpoints)
	next, err := c.clients.newThreads(configuration)
	if err == nil {
		err = c.move(ctx, places[:min(len(places), len(t.regions))], (*table).mirrored)
	}
	if err == nil {
		err = c.commit(places, endpoints, capacity, configuration)
	}
	if err != nil {
		c.update(func(t *table) {
			for i := range t.regions {
				t.regions[i].mirror = nil
			}
		})
		return errors.Join(err, next.discard(), c.dropIdleGrants(ctx))
	}
	c.slo = slo
	if err := c.clients.replace(next); err != nil {
		c.log.Warn("client threads of the configuration before", "err", err)
	}
	if err := c.dropIdleGrants(ctx); err != nil {
		c.log.Warn("the VMs of before are not given back yet", "err", err)
	}
	return nil
}

// commit makes the new places the cache's only ones, unless something was lost.
func (c *Cache) commit(places []place, endpoints []*endpoint, capacity int64, configuration Configuration) (err error) {
	c.update(func(t *table) {
		if err = alive(endpoints); err != nil {
			return
		}
		for _, p := range places[:min(len(places), len(t.regions))] {
			if t.regions[p.region].mirror != p.endpoint {
				err = fmt.Errorf("%w while it moved", ErrRegionUnavailable)
				return
			}
		}
		t.resize(len(places), capacity)
		for _, p := range places {
			t.replace(p)
		}
		t.configure(configuration)
	})
	return err
}

// Reconfigure changes the data path of a live cache (R69): batches, rings, client
// and server threads. Requests go on; those on the same bytes keep their order
// across the change. The VMs stay those that the cache has, and so do their
// processors, of which a launched VM has as many as its cache's configuration asked
// for: more server threads than those are refused with ErrCores, which says how many
// there are. A Reshape to another SLO finds other VMs. A Reconfigure that fails, as where
// the manager refuses it or cannot be reached, changes nothing. It waits for callbacks, so it must not be called from one.
func (c *Cache) Reconfigure(ctx context.Context, configuration Configuration) error {
	if err := c.cfg.Tuning.Check(configuration); err != nil {
		return err
	}
	err := c.requested(ctx, func(ctx context.Context) error { return c.reconfigure(ctx, configuration) })
	if err != nil {
		return fmt.Errorf("redytier: reconfigure to %+v: %w", configuration, err)
	}
	return nil
}

func (c *Cache) reconfigure(ctx context.Context, configuration Configuration) error {
	t := c.table.Load()
	old := t.configuration
	if err := configuration.Check(c.slo.RecordSize); err != nil {
		return err
	}
	// While both kinds of connections are open, servers have what either needs.
	both := Configuration{
		ClientThreads: max(old.ClientThreads, configuration.ClientThreads),
		ServerThreads: max(old.ServerThreads, configuration.ServerThreads),
		BatchSize:     max(old.BatchSize, configuration.BatchSize),
		QueueDepth:    max(old.QueueDepth, configuration.QueueDepth),
	}
	// The manager comes first: what it refuses changes nothing. It allows less whenever it
	// allows more, so that what follows can always be settled.
	if both != old {
		if err := c.settleAs(ctx, both); err != nil {
			c.unsettled.Store(true) // it may have heard
			return err
		}
	}
	undo := func(err error) error {
		err = errors.Join(err, c.configureAll(context.WithoutCancel(ctx), old))
		c.settle(ctx)
		return err
	}
	if err := c.configureAll(ctx, both); err != nil {
		return undo(err)
	}
	instead := map[*grant]*endpoint{}
	var endpoints []*endpoint
	for _, g := range t.grants() {
		l := newEndpoint(g, configuration)
		instead[g] = l
		endpoints = append(endpoints, l)
	}
	next, err := c.clients.newThreads(configuration)
	if err == nil {
		if err = c.addEndpoints(ctx, endpoints); err != nil {
			err = errors.Join(err, next.discard())
		}
	}
	if err != nil {
		return undo(err)
	}
	c.update(func(t *table) {
		t.configure(configuration)
		for i := range t.regions {
			if r := &t.regions[i]; r.endpoint != nil {
				r.endpoint = instead[r.endpoint.grant]
			}
		}
	})
	if err := c.clients.replace(next); err != nil {
		c.log.Warn("client threads of the configuration before", "err", err)
	}
	if err := c.dropIdleGrants(ctx); err != nil {
		c.log.Warn("connections of the configuration before are still open", "err", err)
		return nil
	}
	if err := c.configureAll(ctx, configuration); err != nil {
		c.log.Warn("a server keeps threads that are not needed", "err", err)
	}
	return nil
}

// configureAll tells every server its part of a configuration.
func (c *Cache) configureAll(ctx context.Context, configuration Configuration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	t := c.table.Load().clone()
	t.configure(configuration)
	for _, g := range t.grants() {
		err = errors.Join(err, g.configure(ctx, configuration.share(int(g.regions.Load()), t.per)))
	}
	return err
}
