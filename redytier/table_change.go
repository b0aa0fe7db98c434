package redytier

import (
	"context"
	"fmt"
	"time"
)

// This file publishes tables. The controller does so, for itself and for others (update). A
// session sees a table with its next operation: see session_refresh.go.

// publish makes a changed copy of the table the current one. The controller calls it.
func (k *controller) publish(change func(t *table)) {
	c := k.cache
	before := c.table.Load()
	t := before.clone()
	change(t)
	t.publication = &publication{at: time.Now()}
	c.table.Store(t)
	c.mu.Lock()
	c.past.Tables++
	if before.publication != nil {
		c.past.TableTime += time.Duration(before.publication.delay.Load())
	}
	c.mu.Unlock()
	c.wakeSessions()
}

// wakeSessions wakes the owners of sessions that are parked.
func (c *Cache) wakeSessions() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		s.wake()
	}
}

// update has the controller publish a changed copy of the table, and returns when it has.
// After the end of the controller it has no effect. The controller itself calls publish.
func (c *Cache) update(change func(t *table)) {
	c.controller.do(func() { c.controller.publish(change) })
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

// quiesceWrites waits until every session that writes uses the current table, and has settled all
// writes to the endpoints' grants that it issued before. Those of failed connections have no effect
// afterwards, either.
func (c *Cache) quiesceWrites(ctx context.Context, endpoints ...*endpoint) error {
	var e uint64
	c.update(func(t *table) {
		e = c.writeEpochs.Bump()
		t.writeEpoch = e
	})
	grants := map[*grant]bool{}
	for _, of := range endpoints {
		grants[of.grant] = true
	}
	return c.until(ctx, "writes", func() bool { return c.writeEpochs.Passed(e) && c.written(grants) })
}

// written reports whether no write that was issued before a write epoch, which has passed, is pending
// to grants.
func (c *Cache) written(grants map[*grant]bool) bool {
	c.mu.Lock() // a connection that fails is unsettled in the step in which it is linked no more
	defer c.mu.Unlock()
	for _, e := range c.endpoints {
		if !grants[e.grant] {
			continue
		}
		if e.grant.unsettled.Load() > 0 {
			return false
		}
		for s := range c.sessions {
			if conn := s.linkedBy(e); conn != nil && conn.behind.Load() {
				return false
			}
		}
	}
	return true
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

// lose marks a grant's regions as lost permanently: nothing is read from them afterwards (A46).
// Only the first call has an effect. When it returns, the table has no regions there.
func (c *Cache) lose(g *grant, cause error) {
	err := unavailable(g, cause)
	c.controller.do(func() { c.controller.lose(g, cause, err) })
}

// dropMirrors removes the mirrors of those regions with one for which drop is true. The move of the
// whole cache that needs them then fails.
func (c *Cache) dropMirrors(drop func(*region) bool) {
	for _, r := range c.table.Load().regions.all() {
		if r.mirror != nil && drop(r) {
			c.update(func(t *table) { t.dropMirrors(drop) })
			return
		}
	}
}

// onMirror returns a function that reports whether a region's mirror is on a grant.
func onMirror(g *grant) func(*region) bool {
	return func(r *region) bool { return r.mirror.grant == g }
}

// lose is Cache.lose on the controller's goroutine. Requests to the regions end with err. Grant
// and table change in one step: a table in which a grant is lost has no regions on it.
func (k *controller) lose(g *grant, cause, err error) {
	if g.lost.Load() != nil {
		return
	}
	c := k.cache
	var spans []span
	k.publish(func(t *table) {
		g.lost.Store(&cause)
		regions := t.on(g)
		for _, i := range regions {
			t.regions.edit(i).lose(&err)
		}
		t.dropMirrors(onMirror(g))
		spans = t.spans(regions)
	})
	c.log.Warn("VM lost with its regions", "vm", g.vm, "regions", spans, "err", cause)
	t := c.table.Load()
	for _, at := range spans {
		if o := c.observing(); o != nil {
			o.lost(at)
		}
		c.watcher.report(t.event(Event{Kind: VMLost, VM: g.vm, Err: cause}, at))
	}
	k.duties.lost(incarnation{g.vm, g.start})
}
