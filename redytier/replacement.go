package redytier

import (
	"context"
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// replaceLost finds new memory for everything that is lost, fills it from the
// copies that there are (R83, A49), and makes it answer again. What nobody has a
// copy of comes back as zeros, but not before the application has been told (A46). The
// keeper calls it, without the turn: who is told may be waiting for that.
func (c *Cache) replaceLost(ctx context.Context, lost *grant, u urgency) error {
	for rest := true; rest; {
		if err := c.tellOfZeros(ctx); err != nil {
			return err
		}
		err := c.inTurn(ctx, u, func(ctx context.Context) (err error) {
			rest, err = c.replaceTold(ctx, lost)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tellOfZeros tells the application of lost regions that nobody has a copy of.
func (c *Cache) tellOfZeros(ctx context.Context) error {
	t := c.table.Load()
	var regions []int
	for i := range t.regions {
		if r := &t.regions[i]; r.link == nil && !r.told && !c.hasCopy(r) {
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
			if i < len(now.regions) && now.regions[i].link == nil && now.regions[i].epoch == t.regions[i].epoch {
				now.regions[i].told = true
			}
		}
	})
	return nil
}

// replaceTold replaces the lost regions that have a copy, or whose loss was told. rest
// says that others are left. The turn's holder calls it.
func (c *Cache) replaceTold(ctx context.Context, lost *grant) (rest bool, err error) {
	t := c.table.Load()
	var regions []int
	for i := range t.regions {
		switch r := &t.regions[i]; {
		case r.link != nil:
		case r.told || c.hasCopy(r):
			regions = append(regions, i)
		default:
			rest = true
		}
	}
	if len(regions) == 0 {
		return rest, c.tidy(ctx)
	}
	var links []*link
	switch {
	case !c.gone():
		links, _, err = c.enlist(ctx, &managerv1.ReallocateRequest{
			CacheId: c.ID(), Regions: uint32(len(regions)), AvoidVms: []string{lost.vm}, Client: c.cfg.client(),
		})
	case rest:
		return rest, nil
	case len(regions) < len(t.regions):
		err = fmt.Errorf("%w: %d of its regions still answer", errForgotten, len(t.regions)-len(regions))
	default:
		links, err = c.allocateAgain(ctx)
	}
	if err != nil {
		return rest, err
	}
	places := assignTo(regions, links)
	c.setState(regions, Recovering)
	kept, gone := c.withCopy(places)
	filled, err := c.populate(ctx, kept, c.copyOf)
	rest = c.restore(kept[:filled], gone) || rest
	c.setState(regions, Lost) // those that were not restored
	err = errors.Join(err, c.tidy(ctx))
	c.giveBack(ctx) // the places of those
	return rest, err
}

// setState says how it stands with regions that do not answer.
func (c *Cache) setState(regions []int, s RegionState) {
	c.update(func(t *table) {
		for _, i := range regions {
			if t.regions[i].link == nil {
				t.regions[i].state = s
			}
		}
	})
}

// hasCopy says whether there is a copy of a region's bytes.
func (c *Cache) hasCopy(r *region) bool {
	return c.cfg.Recover != nil || r.origin != nil && !r.origin.written.Load()
}

// withCopy tells the regions that come from a copy from those that will be zeros.
func (c *Cache) withCopy(places []place) (kept, gone []place) {
	t := c.table.Load()
	for _, p := range places {
		if t.regions[p.region].told {
			gone = append(gone, p)
		} else {
			kept = append(kept, p)
		}
	}
	return kept, gone
}

// copyOf reads a lost region's bytes from where there is a copy.
func (c *Cache) copyOf(ctx context.Context, dst []byte, addr int64) error {
	if c.cfg.Recover != nil {
		return c.cfg.Recover(ctx, dst, addr)
	}
	return c.readFile(ctx, dst, addr)
}

// restore makes regions answer from their new places. rest says that one does not:
// a session that had not heard of the loss has written to it, and so its copy is none.
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
				if r := &t.regions[p.region]; !r.told && !c.hasCopy(r) {
					rest = true
				} else if p.link.grant.lost.Load() == nil {
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
