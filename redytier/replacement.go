package redytier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// replaceLost allocates new memory for lost regions, fills it from copies (R83, A49), and makes
// the regions answer again. Regions without a copy become zeros, but not before the application
// was notified (A46): until then they are left to the next call.
func (c *Cache) replaceLost(ctx context.Context) error {
	defer c.controller.attempted()
	return c.replaceReported(ctx, c.controller.attempt())
}

// unreported lists the lost regions without a copy that the application was not notified of.
func (c *Cache) unreported(t *table) (regions []int) {
	for _, i := range t.lost() {
		if r := t.regions.at(i); !r.lossReported && !c.hasCopy(r) {
			regions = append(regions, i)
		}
	}
	return regions
}

// restorable reports whether there are lost regions that replaceLost replaces.
func (c *Cache) restorable() bool {
	t := c.table.Load()
	return len(t.lost()) > len(c.unreported(t))
}

// reportDataLoss notifies the application of lost regions without a copy.
func (c *Cache) reportDataLoss(ctx context.Context) error {
	t := c.table.Load()
	regions := c.unreported(t)
	if len(regions) == 0 {
		return nil
	}
	var events []Event
	for _, span := range t.spans(regions) {
		events = append(events, t.event(Event{Kind: DataLost}, span))
	}
	if err := c.watcher.reportAll(ctx, events); err != nil {
		return err
	}
	c.update(func(now *table) {
		for _, i := range regions {
			if i < now.regions.len() && now.regions.at(i).endpoint == nil && now.regions.at(i).epoch == t.regions.at(i).epoch {
				now.regions.edit(i).setReported()
			}
		}
	})
	return nil
}

// replaceReported replaces the lost regions that have a copy, or whose loss was reported.
// The others are left. If the manager has forgotten the cache, all of it is allocated again,
// and the regions that still answer move there.
func (c *Cache) replaceReported(ctx context.Context, lost []*managerv1.VmIncarnation) (err error) {
	rest := false
	t, forgotten, id := c.table.Load(), c.gone(), c.ID()
	var regions, former []int // to replace; that answer, in grants that the manager does not know
	for i, r := range t.regions.all() {
		switch {
		case r.endpoint != nil:
			if forgotten || r.endpoint.grant.cache != id {
				former = append(former, i)
			}
		case r.lossReported || c.hasCopy(r):
			regions = append(regions, i)
		default:
			rest = true
		}
	}
	var endpoints []*endpoint
	switch {
	case len(regions) == 0 && (forgotten || len(former) == 0):
		return c.dropIdleGrants(ctx)
	case !forgotten:
		endpoints, _, err = c.reallocate(ctx, &managerv1.ReallocateRequest{
			CacheId: id, Regions: uint32(len(regions) + len(former)), LostVms: lost, Client: c.cfg.client(),
			Moves: runsOf(regions, former),
		})
	case rest:
		return nil
	case len(former) > 0 && c.observing() != nil: // forgotten is about to lose them
		err = fmt.Errorf("%w: %d of its regions still answer", errForgotten, len(former))
	default:
		endpoints, err = c.recreate(ctx)
	}
	if err != nil {
		return err
	}
	places := assignTo(append(slices.Clip(regions), former...), endpoints)
	c.update(func(t *table) { t.recover(regions) })
	kept, gone := c.withCopy(places[:len(regions)])
	done, err := c.populate(ctx, kept, c.copies)
	c.restore(done, zeroed(gone))
	c.update(func(t *table) { t.giveUp(regions) })
	return errors.Join(err, c.leave(ctx, places[len(regions):]))
}

// hasCopy reports whether there is a copy of a region's bytes.
func (c *Cache) hasCopy(r *region) bool {
	return c.cfg.Recover != nil || r.origin != nil && !r.origin.written.Load()
}

// withCopy separates regions with a copy from those that will be zeros.
func (c *Cache) withCopy(places []place) (kept, gone []place) {
	t := c.table.Load()
	for _, p := range places {
		if t.regions.at(p.region).lossReported {
			gone = append(gone, p)
		} else {
			kept = append(kept, p)
		}
	}
	return kept, gone
}

// restore makes regions answer from their new places, with a copy or with zeros. One does not if a
// session that did not know of the loss has written to it meanwhile: its copy is stale.
func (c *Cache) restore(kept, gone []filled) {
	if o := c.observing(); o != nil {
		t := c.table.Load()
		for _, f := range append(gone, kept...) {
			o.restored(t.span(f.at.region))
		}
	}
	t := c.table.Load()
	back := func(all []filled, dataLost bool) {
		var regions []int
		c.update(func(t *table) {
			for _, f := range all {
				if r := t.regions.at(f.at.region); (r.lossReported || c.hasCopy(r)) && t.restore(f) {
					regions = append(regions, f.at.region)
				}
			}
		})
		for _, span := range t.spans(regions) {
			c.watcher.report(t.event(Event{Kind: Restored, DataLost: dataLost}, span))
		}
	}
	back(kept, false)
	back(gone, true)
}
