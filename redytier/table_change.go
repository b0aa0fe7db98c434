package redytier

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// This file changes the cache's table. Two locks order changes:
//
//   - The turn (Cache.turn) is held by one control operation at a time (A36): a move, a
//     reshape, the replacement of lost memory. It may be held for long; see turn.go.
//   - tableMu is held for a single change: read, modify, publish. A loss needs only this
//     one, so it takes effect at once; operations check for losses after each step.

// update publishes a changed copy of the table.
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

// changed makes every session check the cache's state.
func (c *Cache) changed() { c.update(func(*table) {}) }

// quiesce waits until every session uses the current table and has settled all requests that
// it issued before.
func (c *Cache) quiesce(ctx context.Context) error {
	var e uint64
	c.update(func(t *table) { // also for sessions that have the current one: they must see the epoch
		e = c.epochs.Bump()
		t.epoch = e
	})
	return c.until(ctx, "requests", func() bool { return c.epochs.Passed(e) })
}

// quiesceWrites waits until every session that writes uses the current table and has settled all
// writes that it issued before. Writes of failed connections have no effect in the endpoints'
// grants afterwards, either.
func (c *Cache) quiesceWrites(ctx context.Context, endpoints ...*endpoint) error {
	var e uint64
	c.update(func(t *table) {
		e = c.writeEpochs.Bump()
		t.writeEpoch = e
	})
	unsettled := func(of *endpoint) bool { return of != nil && of.grant.unsettled.Load() > 0 }
	return c.until(ctx, "writes", func() bool { return c.writeEpochs.Passed(e) && !slices.ContainsFunc(endpoints, unsettled) })
}

// until waits until sessions have settled what was pending.
func (c *Cache) until(ctx context.Context, what string, settled func() bool) error {
	pause := 50 * time.Microsecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for !settled() {
		select {
		case <-timer.C:
			pause = min(2*pause, 2*time.Millisecond)
			timer.Reset(pause)
		case <-ctx.Done():
			return fmt.Errorf("sessions with pending %s: %w", what, context.Cause(ctx))
		case <-c.ctx.Done():
			return ErrDeleted
		}
	}
	return nil
}

// addEndpoints connects every session to new endpoints, and adds these to the table. If that
// fails for any session, none is added.
func (c *Cache) addEndpoints(ctx context.Context, endpoints []*endpoint) error {
	c.mu.Lock()
	c.endpoints = append(c.endpoints, endpoints...) // new sessions connect by themselves
	sessions := make([]*Session, 0, len(c.sessions))
	for s := range c.sessions {
		sessions = append(sessions, s)
	}
	c.mu.Unlock()
	var err error
	for _, s := range sessions {
		for _, e := range endpoints {
			if err == nil {
				err = c.deliver(ctx, s, e)
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

// removeEndpoints removes endpoints from the table. Sessions close their connections to them.
func (c *Cache) removeEndpoints(endpoints []*endpoint) {
	gone := func(e *endpoint) bool { return slices.Contains(endpoints, e) }
	c.mu.Lock()
	c.endpoints = slices.DeleteFunc(c.endpoints, gone)
	var unused []*conn // of sessions that did nothing since
	for s := range c.sessions {
		maps.DeleteFunc(s.generations, func(g *grant, _ uint32) bool {
			return !slices.ContainsFunc(c.endpoints, func(e *endpoint) bool { return e.grant == g })
		})
		unused = append(unused, s.takeUnused(gone)...)
	}
	c.mu.Unlock()
	c.closeUnused(unused)
	c.update(func(t *table) { t.endpoints = slices.DeleteFunc(t.endpoints, gone) })
}

// takeUnused removes the connections to some endpoints from a session's inbox. It is called
// under Cache.mu.
func (s *Session) takeUnused(of func(*endpoint) bool) (unused []*conn) {
	s.inbox = slices.DeleteFunc(s.inbox, func(conn *conn) bool {
		taken := of(conn.endpoint)
		if taken {
			unused = append(unused, conn)
		}
		return taken
	})
	return unused
}

func (c *Cache) closeUnused(conns []*conn) {
	for _, conn := range conns {
		if err := conn.close(); err != nil {
			c.log.Warn("closing an unused connection", "vm", conn.endpoint.grant.vm, "err", err)
		}
	}
}

// hasEndpoint reports whether sessions connect to an endpoint.
func (c *Cache) hasEndpoint(e *endpoint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.endpoints, e)
}

// deliver puts a new connection into a session's inbox. If another connection of the session
// fails meanwhile, it dials again, because the server ends connections of that generation.
func (c *Cache) deliver(ctx context.Context, s *Session, e *endpoint) error {
	for {
		c.mu.Lock()
		generation := s.generations[e.grant]
		c.mu.Unlock()
		conn, err := s.dial(ctx, e, generation)
		c.mu.Lock()
		stale := generation != s.generations[e.grant]
		_, wanted := c.sessions[s]
		wanted = wanted && slices.Contains(c.endpoints, e)
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

// lose marks a grant's regions as lost permanently: nothing is read from them afterwards (A46).
// Only the first call has an effect. Grant and table change in one step: after a grant is
// seen as lost, the table has no regions on it.
func (c *Cache) lose(g *grant, cause error) {
	if g.lost.Load() != nil {
		return
	}
	err := unavailable(g, cause)
	var spans []span
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
		return // lost already
	}
	c.log.Warn("VM lost with its regions", "vm", g.vm, "regions", spans, "err", cause)
	for _, at := range spans {
		if o := c.observing(); o != nil {
			o.lost(at)
		}
		c.watcher.report(after.event(Event{Kind: VMLost, VM: g.vm, Err: cause}, at))
	}
	c.keeper.lost(g)
}
