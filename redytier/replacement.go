package redytier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// replaceLost allocates new memory for all lost regions, fills it from copies (R83, A49), and
// makes the regions answer again. Regions without a copy become zeros, but not before the
// application was notified (A46). The keeper calls it without the turn, because OnEvent may
// wait for the turn.
func (c *Cache) replaceLost(ctx context.Context, lost *grant, u urgency) error {
	for rest := true; rest; {
		if err := c.reportDataLoss(ctx); err != nil {
			return err
		}
		err := c.inTurn(ctx, u, true, func(ctx context.Context) (err error) {
			rest, err = c.replaceReported(ctx, lost)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// reportDataLoss notifies the application of lost regions without a copy.
func (c *Cache) reportDataLoss(ctx context.Context) error {
	t := c.table.Load()
	var regions []int
	for _, i := range t.lost() {
		if r := &t.regions[i]; !r.lossReported && !c.hasCopy(r) {
			regions = append(regions, i)
		}
	}
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
			if i < len(now.regions) && now.regions[i].endpoint == nil && now.regions[i].epoch == t.regions[i].epoch {
				now.regions[i].lossReported = true
			}
		}
	})
	return nil
}

// replaceReported replaces the lost regions that have a copy, or whose loss was reported.
// rest says that others are left. If the manager has forgotten the cache, all of it is
// allocated again, and the regions that still answer move there. The caller holds the turn.
func (c *Cache) replaceReported(ctx context.Context, lost *grant) (rest bool, err error) {
	t, forgotten, id := c.table.Load(), c.gone(), c.ID()
	var regions, former []int // to replace; that answer, in grants that the manager does not know
	for i := range t.regions {
		switch r := &t.regions[i]; {
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
		return rest, c.dropIdleGrants(ctx)
	case !forgotten:
		endpoints, _, err = c.reallocate(ctx, &managerv1.ReallocateRequest{
			CacheId: id, Regions: uint32(len(regions) + len(former)), AvoidVms: []string{lost.vm}, Client: c.cfg.client(),
		})
	case rest:
		return rest, nil
	case len(former) > 0 && c.observing() != nil: // forgotten is about to lose them
		err = fmt.Errorf("%w: %d of its regions still answer", errForgotten, len(former))
	default:
		endpoints, err = c.recreate(ctx)
	}
	if err != nil {
		return rest, err
	}
	places := assignTo(append(slices.Clip(regions), former...), endpoints)
	c.setState(regions, Recovering)
	kept, gone := c.withCopy(places[:len(regions)])
	filled, err := c.populate(ctx, kept, c.copyOf)
	rest = c.restore(kept[:filled], gone) || rest
	c.setState(regions, Lost) // of those that were not restored
	return rest, errors.Join(err, c.leave(ctx, places[len(regions):]))
}

// setState sets the state of regions that do not answer.
func (c *Cache) setState(regions []int, s RegionState) {
	c.update(func(t *table) {
		for _, i := range regions {
			if t.regions[i].endpoint == nil {
				t.regions[i].state = s
			}
		}
	})
}

// hasCopy reports whether there is a copy of a region's bytes.
func (c *Cache) hasCopy(r *region) bool {
	return c.cfg.Recover != nil || r.origin != nil && !r.origin.written.Load()
}

// withCopy separates regions with a copy from those that will be zeros.
func (c *Cache) withCopy(places []place) (kept, gone []place) {
	t := c.table.Load()
	for _, p := range places {
		if t.regions[p.region].lossReported {
			gone = append(gone, p)
		} else {
			kept = append(kept, p)
		}
	}
	return kept, gone
}

// copyOf reads the copy of a lost region's bytes.
func (c *Cache) copyOf(ctx context.Context, dst []byte, addr int64) error {
	if c.cfg.Recover != nil {
		return c.cfg.Recover(ctx, dst, addr)
	}
	return c.readFile(ctx, dst, addr)
}

// restore makes regions answer from their new places. rest says that one does not: a session
// that did not know of the loss has written to it, so its copy is stale.
func (c *Cache) restore(kept, gone []place) (rest bool) {
	if o := c.observing(); o != nil {
		t := c.table.Load()
		for _, p := range append(gone, kept...) {
			o.restored(t.span(p.region))
		}
	}
	t := c.table.Load()
	back := func(places []place, dataLost bool) {
		var regions []int
		c.update(func(t *table) {
			for _, p := range places {
				if r := &t.regions[p.region]; !r.lossReported && !c.hasCopy(r) {
					rest = true
				} else if p.endpoint.grant.lost.Load() == nil {
					t.replace(p)
					regions = append(regions, p.region)
				}
			}
		})
		for _, span := range t.spans(regions) {
			c.watcher.report(t.event(Event{Kind: Restored, DataLost: dataLost}, span))
		}
	}
	back(kept, false)
	back(gone, true)
	return rest
}
