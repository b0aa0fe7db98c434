package redytier

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// ErrFixed is the error of [Cache.Reshape] for a cache under a [Device]: the log's ring is
// laid out once. For another capacity or SLO, close the device and open another one.
var ErrFixed = errors.New("redytier: the cache of a device keeps its capacity and SLO: close the device, and open one with others")

// Reshape changes the cache's capacity and SLO (R6). With the same SLO, the cache grows or
// shrinks in place: bytes that are cut off are lost, added ones are zeros (R71, R72). If it
// grows and all of it costs less elsewhere, for example in one larger VM, it moves there
// (R74). With another SLO, the manager chooses other VMs and another configuration, and the
// regions move there (R70). Requests continue; sessions see the new capacity with their next
// request, and pending requests beyond it end with ErrOutOfRange.
//
// A Reshape that fails, for example because memory is lost meanwhile, changes nothing (R76).
// If a VM is reclaimed, Reshape is undone and starts again when that VM is left. For a cache
// under a [Device] it returns [ErrFixed]. It may wait for callbacks, so it must not be
// called from one.
func (c *Cache) Reshape(ctx context.Context, capacity int64, slo SLO) error {
	err := cmp.Or(checkCapacity(capacity, c.RegionSize()), slo.check())
	if err == nil && c.observing() != nil {
		err = ErrFixed
	}
	if err == nil {
		err = c.perform(ctx, !c.cfg.RefuseBusy, func(ctx context.Context) error { return c.reshape(ctx, capacity, slo) })
	}
	if err != nil {
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
		err = errors.Join(err, c.Err()) // memory lost meanwhile may be the reason
	}
	return err
}

// shrink cuts the table, and returns unused memory when no request to it is pending.
func (c *Cache) shrink(ctx context.Context, capacity int64) error {
	c.update(func(t *table) { t.resize(t.need(capacity), capacity) })
	if err := c.returnUnused(ctx); err != nil {
		// The capacity has changed; the memory is returned next time.
		c.log.Warn("returning memory after shrinking", "err", err)
	}
	return nil
}

// grow adds zeros at the end: the rest of the last region, then more regions. If one larger
// VM for all of them is cheaper, the cache moves there (R74).
func (c *Cache) grow(ctx context.Context, capacity int64) error {
	t := c.table.Load()
	if err := c.clearEnd(ctx, min(capacity, int64(t.regions.len())<<t.shift)); err != nil {
		return err
	}
	more := t.need(capacity) - t.regions.len()
	var endpoints []*endpoint
	if more > 0 {
		var err error
		endpoints, _, err = c.reallocate(ctx, &managerv1.ReallocateRequest{
			CacheId: c.ID(), Regions: uint32(more), Whole: uint32(t.need(capacity)), PreferPresent: true, Client: c.cfg.client(),
			Moves: &managerv1.RegionRuns{Runs: []*managerv1.RegionRun{{First: uint32(t.regions.len()), Regions: uint32(more)}}},
		})
		if err != nil {
			return err
		}
		if len(assign(t.need(capacity), endpoints)) > more {
			return c.moveTo(ctx, endpoints, capacity, c.slo, t.configuration)
		}
	}
	places := assign(more, endpoints)
	for i := range places {
		places[i].region += t.regions.len()
	}
	var err error
	c.update(func(t *table) {
		if err = alive(endpoints); err != nil {
			return
		}
		t.resize(t.need(capacity), capacity)
		for _, f := range zeroed(places) {
			t.restore(f)
		}
	})
	if err != nil {
		return errors.Join(err, c.dropIdleGrants(ctx))
	}
	ctx, cancel := finishing(ctx)
	defer cancel()
	c.settle(ctx)
	return nil
}

// alive returns an error if the memory of an endpoint is lost.
func alive(endpoints []*endpoint) error {
	for _, e := range endpoints {
		if cause := e.grant.lost.Load(); cause != nil {
			return unavailable(e.grant, *cause)
		}
	}
	return nil
}

// clearEnd zeroes the last region's bytes from the capacity to a higher one: they may have
// been cut off before. Pending writes to them end first.
func (c *Cache) clearEnd(ctx context.Context, to int64) (err error) {
	t := c.table.Load()
	if to <= t.capacity {
		return nil
	}
	last := t.regions.at(t.regions.len() - 1)
	if last.endpoint == nil {
		return *last.cause
	}
	if err := c.quiesceWrites(ctx, last.endpoint); err != nil {
		return err
	}
	p, err := c.openRegionWriter(ctx, last.endpoint.grant, true)
	if err != nil {
		return err
	}
	err = p.fill(ctx, last.index, t.capacity&t.mask, to-t.capacity, zero)
	return errors.Join(err, p.close())
}

// moveAll moves the whole cache to VMs that meet another SLO.
func (c *Cache) moveAll(ctx context.Context, capacity int64, slo SLO) error {
	t := c.table.Load()
	if err := c.clearEnd(ctx, min(capacity, int64(t.regions.len())<<t.shift)); err != nil {
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

// moveTo moves the whole cache to endpoints, which have room for all of it. Until that is
// done the old VMs serve, and every write goes to both (A38).
func (c *Cache) moveTo(ctx context.Context, endpoints []*endpoint, capacity int64, slo SLO, configuration Configuration) error {
	t := c.table.Load()
	places := assign(t.need(capacity), endpoints)
	next, err := c.clients.newThreads(configuration)
	if err == nil {
		err = c.move(ctx, places[:min(len(places), t.regions.len())], true)
	}
	if err == nil {
		err = c.commit(places, endpoints, capacity, configuration)
	}
	if err != nil {
		c.dropMirrors(func(*region) bool { return true })
		return errors.Join(err, next.discard(), c.dropIdleGrants(ctx))
	}
	c.slo = slo
	if err := c.clients.replace(ctx, next); err != nil {
		c.log.Warn("ending the client threads of the former configuration", "err", err)
	}
	if err := c.dropIdleGrants(ctx); err != nil {
		c.log.Warn("returning the former VMs", "err", err)
	}
	return nil
}

// commit makes the new places the cache's only ones, unless memory was lost.
func (c *Cache) commit(places []place, endpoints []*endpoint, capacity int64, configuration Configuration) (err error) {
	c.update(func(t *table) {
		if err = alive(endpoints); err != nil {
			return
		}
		moved := min(len(places), t.regions.len())
		for _, p := range places[:moved] {
			if r := t.regions.at(p.region); r.mirror != p.endpoint || r.mirrorIndex != p.index {
				err = fmt.Errorf("%w while it moved", ErrRegionUnavailable)
				return
			}
		}
		t.resize(len(places), capacity)
		for i := range moved {
			t.regions.edit(i).switchover()
		}
		for _, f := range zeroed(places[moved:]) {
			t.restore(f)
		}
		t.configure(configuration)
	})
	return err
}

// Reconfigure changes the data path of a live cache (R69): batches, rings, client and server
// threads. Requests continue; those on the same bytes keep their order across the change.
// The cache keeps its VMs. A launched VM has as many processors as its cache's configuration
// asked for: more server threads are refused with ErrCores, which says how many there are; a
// Reshape to another SLO finds other VMs. A Reconfigure that fails changes nothing. It waits
// for callbacks, so it must not be called from one.
func (c *Cache) Reconfigure(ctx context.Context, configuration Configuration) error {
	if err := c.cfg.Tuning.Check(configuration); err != nil {
		return err
	}
	err := c.perform(ctx, !c.cfg.RefuseBusy, func(ctx context.Context) error { return c.reconfigure(ctx, configuration) })
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
	// While several kinds of connections are open, servers allow each: the last Reconfigure may have given
	// way to this one before those of its former configuration were closed.
	before := c.allowed
	both := old.most(before).most(configuration)
	// The manager is asked first: a refusal changes nothing. A manager that allows more also
	// allows less, so the later Settle succeeds.
	if both != old {
		if err := c.settleAs(ctx, both, nil); err != nil {
			c.unsettled.Store(true) // the call may have had an effect
			return err
		}
	}
	undo := func(err error) error { // the table has the former configuration
		err = errors.Join(err, c.configureServers(ctx, before))
		ctx, cancel := finishing(ctx)
		defer cancel()
		c.settle(ctx)
		if c.allowed != (Configuration{}) {
			c.unsettled.Store(true)
		}
		return err
	}
	c.allowed = both
	if err := c.configureAll(ctx, both); err != nil {
		return undo(err)
	}
	instead := map[*grant]*endpoint{}
	var endpoints []*endpoint
	for _, g := range t.grants() {
		e := newEndpoint(g, configuration)
		instead[g] = e
		endpoints = append(endpoints, e)
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
		t.reconnect(instead)
	})
	if err := c.clients.replace(ctx, next); err != nil {
		c.log.Warn("ending the client threads of the former configuration", "err", err)
	}
	if err := c.dropIdleGrants(ctx); err != nil {
		c.log.Warn("closing connections of the former configuration", "err", err)
	} else if err := c.configureServers(ctx, Configuration{}); err != nil {
		c.log.Warn("ending server threads of the former configuration", "err", err)
	}
	return nil
}
