package redytier

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// This file is how the cache's table changes. Two locks order that:
//
//   - the turn (Cache.turn) is held by one control operation at a time (A36): a
//     migration, a reshape, the replacement of what was lost. It may take long, and
//     gives way to what is more urgent: see turn.go.
//   - tableMu is held for each single change, read, modify, publish. A server's
//     loss needs nothing else, so that it takes effect whatever goes on; an
//     operation looks for it after each step.

// update publishes what change makes of a copy of the table.
func (c *Cache) update(change func(t *table)) {
	c.tableMu.Lock()
	defer c.tableMu.Unlock()
	t := c.table.Load().clone()
	change(t)
	c.table.Store(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		s.wake()
	}
}

// changed makes every session look at the cache's state.
func (c *Cache) changed() { c.update(func(*table) {}) }

// quiesce waits until every session works by the present table and has settled
// all it issued before. What it issued and what failed takes no effect any more in
// the grants of endpoints, either.
func (c *Cache) quiesce(ctx context.Context, endpoints ...*endpoint) error {
	var e uint64
	c.update(func(t *table) { // also for sessions that know the present one: they have to notice the epoch
		e = c.epochs.Bump()
		t.epoch = e
	})
	pause := 50 * time.Microsecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	unsettled := func(l *endpoint) bool { return l != nil && l.grant.unsettled.Load() > 0 }
	for !c.epochs.Passed(e) || slices.ContainsFunc(endpoints, unsettled) {
		select {
		case <-timer.C:
			pause = min(2*pause, 2*time.Millisecond)
			timer.Reset(pause)
		case <-ctx.Done():
			return fmt.Errorf("sessions with requests under way: %w", context.Cause(ctx))
		case <-c.ctx.Done():
			return ErrDeleted
		}
	}
	return nil
}

// addEndpoints gives every session a connection over some new endpoints, and adds them to the
// table. If that fails for any session, no endpoint is added.
func (c *Cache) addEndpoints(ctx context.Context, endpoints []*endpoint) error {
	c.mu.Lock()
	c.endpoints = append(c.endpoints, endpoints...) // sessions made from now on connect by themselves
	sessions := make([]*Session, 0, len(c.sessions))
	for s := range c.sessions {
		sessions = append(sessions, s)
	}
	c.mu.Unlock()
	var err error
	for _, s := range sessions {
		for _, l := range endpoints {
			if err == nil {
				err = c.deliver(ctx, s, l)
			}
		}
	}
	if err != nil {
		c.removeEndpoints(endpoints)
		return err
	}
	c.update(func(t *table) { t.endpoints = append(t.endpoints, endpoints...) })
	return nil
}

// removeEndpoints takes endpoints out of use. Sessions close their connections over them.
func (c *Cache) removeEndpoints(endpoints []*endpoint) {
	c.mu.Lock()
	c.endpoints = slices.DeleteFunc(c.endpoints, func(l *endpoint) bool { return slices.Contains(endpoints, l) })
	var unused []*conn // made for sessions that did nothing since
	for s := range c.sessions {
		maps.DeleteFunc(s.generations, func(g *grant, _ uint32) bool {
			return !slices.ContainsFunc(c.endpoints, func(l *endpoint) bool { return l.grant == g })
		})
		s.inbox = slices.DeleteFunc(s.inbox, func(conn *conn) bool {
			gone := slices.Contains(endpoints, conn.endpoint)
			if gone {
				unused = append(unused, conn)
			}
			return gone
		})
	}
	c.mu.Unlock()
	for _, conn := range unused {
		if err := conn.close(); err != nil {
			c.log.Warn("closing an unused connection", "vm", conn.endpoint.grant.vm, "err", err)
		}
	}
	c.update(func(t *table) { t.removeEndpoints(endpoints) })
}

// hasEndpoint says whether sessions connect over a endpoint.
func (c *Cache) hasEndpoint(l *endpoint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.endpoints, l)
}

// deliver makes a connection for a session, which finds it at the next change. Where
// another of the session's fails meanwhile it is made again, for it would be ended.
func (c *Cache) deliver(ctx context.Context, s *Session, l *endpoint) error {
	for {
		c.mu.Lock()
		generation := s.generations[l.grant]
		c.mu.Unlock()
		conn, err := s.dial(ctx, l, generation)
		c.mu.Lock()
		stale := generation != s.generations[l.grant]
		_, wanted := c.sessions[s]
		wanted = wanted && slices.Contains(c.endpoints, l)
		if err == nil && wanted && !stale {
			s.inbox = append(s.inbox, conn)
			conn = nil
		}
		c.mu.Unlock()
		if conn != nil {
			err = conn.close()
		}
		if !wanted || !stale {
			return err
		}
	}
}

// lose marks a grant's regions as lost, for good: what they held is gone, and
// nothing is read from them any more (A46). It does so once. The grant and the table
// say so in one step: whoever sees that a grant is lost, and changes the table after
// that, finds its regions without a place.
func (c *Cache) lose(g *grant, cause error) {
	if g.lost.Load() != nil {
		return
	}
	err := unavailable(g, cause)
	var spans [][2]int64
	var after *table
	c.update(func(t *table) {
		if !g.lost.CompareAndSwap(nil, &cause) {
			return
		}
		after = t
		regions := t.on(g)
		for _, i := range regions {
			r := &t.regions[i]
			*r = region{cause: &err, state: Lost, origin: r.origin, epoch: r.epoch + 1}
		}
		for i := range t.regions {
			if r := &t.regions[i]; r.mirror != nil && r.mirror.grant == g {
				r.mirror = nil
			}
		}
		spans = t.spans(regions)
	})
	if after == nil {
		return // another was first
	}
	c.log.Warn("VM lost with its regions", "vm", g.vm, "regions", spans, "err", cause)
	for _, span := range spans {
		if o := c.observing(); o != nil {
			o.lost(span[0], span[1])
		}
		c.watcher.report(after.event(Event{Kind: VMLost, VM: g.vm, Err: cause}, span))
	}
	c.keeper.lost(g)
}
