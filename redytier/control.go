package redytier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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

// inTurn carries out a control operation when no other runs. The operation's ctx ends
// when the cache is deleted, and when a more urgent one waits: then the operation fails,
// which changes nothing or leaves what has moved where it is, and is carried out again
// after the other. One that fails for memory that is lost does so at once.
func (c *Cache) inTurn(ctx context.Context, u urgency, operation func(ctx context.Context) error) error {
	return c.takeTurns(ctx, u, true, operation)
}

// asked is inTurn for what the application asks for: while another operation runs it
// waits or is refused, as Config says.
func (c *Cache) asked(ctx context.Context, operation func(ctx context.Context) error) error {
	return c.takeTurns(ctx, urgency{}, !c.cfg.RefuseBusy, operation)
}

func (c *Cache) takeTurns(ctx context.Context, u urgency, wait bool, operation func(ctx context.Context) error) error {
	for {
		err := c.takeTurn(ctx, u, wait, operation)
		if !errors.Is(err, errGaveWay) {
			return err
		}
		c.log.Info("a control operation is carried out again, after another one", "err", err)
		wait = true
	}
}

// takeTurn is one attempt of takeTurns.
func (c *Cache) takeTurn(ctx context.Context, u urgency, wait bool, operation func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(ErrDeleted) })
	defer stop()
	switch err := c.turn.take(ctx, &claim{urgency: u, giveWay: cancel}, wait); {
	case c.deleted.Load():
		if err == nil {
			c.turn.pass()
		}
		return ErrDeleted
	case errors.Is(err, ErrBusy):
		return fmt.Errorf("%w: another control operation runs", err)
	case err != nil:
		return err
	}
	defer c.turn.pass()
	err := operation(ctx)
	switch {
	case err == nil:
		return nil
	case c.ctx.Err() != nil && !errors.Is(err, ErrDeleted):
		return fmt.Errorf("%w: %w", ErrDeleted, err)
	case errors.Is(context.Cause(ctx), errGaveWay) && !errors.Is(err, ErrRegionUnavailable):
		return errors.Join(errGaveWay, err)
	}
	return err
}

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
// the grants of links, either.
func (c *Cache) quiesce(ctx context.Context, links ...*link) error {
	var e uint64
	c.update(func(t *table) { // also for sessions that know the present one: they have to notice the epoch
		e = c.epochs.Bump()
		t.epoch = e
	})
	pause := 50 * time.Microsecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	doubtful := func(l *link) bool { return l != nil && l.grant.doubts.Load() > 0 }
	for !c.epochs.Passed(e) || slices.ContainsFunc(links, doubtful) {
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

// join gives every session a connection over some new links, and adds them to the
// table. If that fails for any session, no link is added.
func (c *Cache) join(ctx context.Context, links []*link) error {
	c.mu.Lock()
	c.links = append(c.links, links...) // sessions made from now on connect by themselves
	sessions := make([]*Session, 0, len(c.sessions))
	for s := range c.sessions {
		sessions = append(sessions, s)
	}
	c.mu.Unlock()
	var err error
	for _, s := range sessions {
		for _, l := range links {
			if err == nil {
				err = c.mail(ctx, s, l)
			}
		}
	}
	if err != nil {
		c.part(links)
		return err
	}
	c.update(func(t *table) { t.links = append(t.links, links...) })
	return nil
}

// part takes links out of use. Sessions close their connections over them.
func (c *Cache) part(links []*link) {
	c.mu.Lock()
	c.links = slices.DeleteFunc(c.links, func(l *link) bool { return slices.Contains(links, l) })
	var unused []*conn // made for sessions that did nothing since
	for s := range c.sessions {
		maps.DeleteFunc(s.generations, func(g *grant, _ uint32) bool {
			return !slices.ContainsFunc(c.links, func(l *link) bool { return l.grant == g })
		})
		s.mail = slices.DeleteFunc(s.mail, func(conn *conn) bool {
			gone := slices.Contains(links, conn.link)
			if gone {
				unused = append(unused, conn)
			}
			return gone
		})
	}
	c.mu.Unlock()
	for _, conn := range unused {
		if err := conn.close(); err != nil {
			c.log.Warn("closing an unused connection", "vm", conn.link.grant.vm, "err", err)
		}
	}
	c.update(func(t *table) { t.unlink(links) })
}

// uses says whether sessions connect over a link.
func (c *Cache) uses(l *link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.links, l)
}

// mail makes a connection for a session, which finds it at the next change. Where
// another of the session's fails meanwhile it is made again, for it would be ended.
func (c *Cache) mail(ctx context.Context, s *Session, l *link) error {
	for {
		c.mu.Lock()
		generation := s.generations[l.grant]
		c.mu.Unlock()
		conn, err := s.dial(ctx, l, generation)
		c.mu.Lock()
		stale := generation != s.generations[l.grant]
		_, wanted := c.sessions[s]
		wanted = wanted && slices.Contains(c.links, l)
		if err == nil && wanted && !stale {
			s.mail = append(s.mail, conn)
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

// goes counts goroutines that a cache waits for when it is deleted. None begins
// after that.
type goes struct {
	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

// Go returns false where none begins any more.
func (g *goes) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.running.Go(f)
	}
	return !g.ended
}

func (g *goes) end() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.running.Wait()
}
