package redytier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// This file opens the connections of sessions: when a session first needs one, after one has
// failed, and before regions move. A goroutine of the cache dials, puts the connection into the
// session's inbox and wakes the session. Then it imports regions (imports.go).

// link is a session's connection to an endpoint, and the regions that it uses there, as other
// goroutines see them. Sessions of the next client threads have links where their predecessors do.
type link struct {
	conn    *conn          // delivered, and not known to have failed; nil: none
	working bool           // a goroutine connects and imports until all is done, or it is not needed
	trying  bool           // a goroutine tries that once: see accompany
	uses    map[uint32]use // by index; of connections without rings
	wanted  []place        // to be imported, in this order
}

// link returns the session's link to an endpoint. It is called under Cache.mu.
func (s *Session) link(e *endpoint) *link {
	l := s.links[e]
	if l == nil {
		l = &link{uses: map[uint32]use{}}
		s.links[e] = l
	}
	return l
}

// linkedBy returns the session's connection to an endpoint, or nil. It is called under Cache.mu.
func (s *Session) linkedBy(e *endpoint) *conn {
	if l := s.links[e]; l != nil {
		return l.conn
	}
	return nil
}

// open opens the session's connection to a place and imports the region there, unless that is
// done or a goroutine does it. The owner calls it; it does not block.
func (s *Session) open(p place) {
	c, e := s.cache, p.endpoint
	c.mu.Lock()
	idle := false
	if !e.removed.Load() {
		l := s.want(p)
		idle = !l.working && (l.conn == nil || len(l.wanted) > 0)
		l.working = l.working || idle
	}
	c.mu.Unlock()
	if idle {
		c.background.Go(func() { c.connect(s, e, nil, true, func() {}) })
	}
}

// connFailed reacts to a failed connection: if the server still answers, the session gets a
// new connection, otherwise the server's memory is lost. The session's goroutine calls it; it
// does not block.
func (c *Cache) connFailed(failed *conn, cause error) {
	s, g := failed.session, failed.endpoint.grant
	endpoints := []*endpoint{failed.endpoint}
	c.mu.Lock()
	var stale []*conn
	if failed.generation == s.generations[g] {
		s.generations[g]++
		stale = s.takeUnused(func(e *endpoint) bool { return e.grant == g })
	}
	for _, conn := range stale {
		endpoints = append(endpoints, conn.endpoint)
	}
	for _, e := range endpoints {
		delete(s.links, e)
		s.link(e).working = true
		s.unsettled.Add(1)
		g.unsettled.Add(1)
	}
	c.mu.Unlock()
	c.closeUnused(stale)
	for _, e := range endpoints {
		settled := sync.OnceFunc(func() {
			if o := c.observing(); g.unsettled.Add(-1) == 0 && o != nil {
				o.settled()
			}
			s.unsettled.Done()
		})
		if !c.background.Go(func() { c.connect(s, e, cause, e != failed.endpoint, settled) }) {
			settled()
		}
	}
}

// attempts are those of a goroutine that connects or imports until it succeeds.
type attempts struct {
	since time.Time
	wait  time.Duration // until the next one
	late  int           // see inconclusive
}

func newAttempts() *attempts { return &attempts{since: time.Now(), wait: firstPause} }

// pause waits between two attempts. It returns false if ctx ends.
func (a *attempts) pause(ctx context.Context) bool {
	wait := a.wait
	a.wait = min(2*wait, longPause)
	return clock.Sleep(ctx, wait)
}

// conclusive reports whether a failed attempt means that the server is lost.
func (c *Cache) conclusive(g *grant, err error, a *attempts) bool {
	return !c.inconclusive(c.ctx, g, err, &a.late) && !c.readsWell(c.ctx, g)
}

// connect connects a session to an endpoint while the session needs that, and imports the regions
// that it wants there, or marks the grant as lost. It tries again if a failure is inconclusive.
// cause is the end of the earlier connection; nil: there was none. waited says that the session has not
// had it, so that requests wait for this one. connect calls settled as soon as requests that failed can have no effect any more.
func (c *Cache) connect(s *Session, e *endpoint, cause error, waited bool, settled func()) {
	defer settled()
	tries := newAttempts()
	if c.connectNeeded(s, e, cause, waited, tries, settled) || cause == nil {
		return
	}
	c.endEarlier(s, e.grant, cause, tries)
}

// connectNeeded is connect while the session needs the connection. It returns false if the session no
// longer does, and the server may not have ended the earlier one.
func (c *Cache) connectNeeded(s *Session, e *endpoint, cause error, waited bool, tries *attempts, settled func()) bool {
	for e.grant.lost.Load() == nil && c.needsConn(s, e) {
		var conn *conn
		err := e.grant.persist(c.ctx, func(ctx context.Context) (err error) {
			conn, err = c.deliver(ctx, s, e, c.cfg.reconnect)
			return err
		})
		switch {
		case err == nil:
			if cause != nil && conn != nil {
				c.log.Info("reconnected", "vm", e.grant.vm, "after", cause)
			}
			if conn == nil {
				return false
			}
			settled()
			c.bring(conn)
			return true
		case c.ctx.Err() != nil:
			return true
		case !c.hasEndpoint(e):
			return false
		case c.conclusive(e.grant, err, tries):
			c.lose(e.grant, errors.Join(cause, err))
			return true
		}
		refused := errors.Is(err, ErrNoRoom)
		if refused {
			settled() // the server was asked, and has ended the earlier connections
		}
		if waited && (refused || time.Since(tries.since) > controlTimeout) {
			waited = false
			c.refuse(s, e, err)
		}
		c.log.Warn("connecting", "vm", e.grant.vm, "after", cause, "again in", tries.wait, "err", err)
		if !tries.pause(c.ctx) {
			return true
		}
	}
	return e.grant.lost.Load() != nil
}

// endEarlier returns when the server has ended a session's failed connections to a grant, which it does
// when it accepts a later one, or when the grant is lost or returned. The session may be closed, or not need
// a connection there.
func (c *Cache) endEarlier(s *Session, g *grant, cause error, tries *attempts) {
	for g.lost.Load() == nil {
		e, generation, ended := c.laterConn(s, g)
		if ended {
			return
		}
		err := g.persist(c.ctx, func(ctx context.Context) error {
			later, err := s.dial(ctx, e, generation, c.cfg.reconnect)
			if err == nil {
				c.closeUnused([]*conn{later})
			}
			return err
		})
		_, now, ended := c.laterConn(s, g)
		switch {
		case err == nil || errors.Is(err, ErrNoRoom) || ended || c.ctx.Err() != nil:
			return
		case now != generation: // the server refuses this one since it has seen a newer one
			continue
		case c.conclusive(g, err, tries):
			c.lose(g, errors.Join(cause, err))
			return
		}
		c.log.Warn("ending an earlier connection", "vm", g.vm, "after", cause, "again in", tries.wait, "err", err)
		if !tries.pause(c.ctx) {
			return
		}
	}
}

// laterConn returns an endpoint of a grant, and the generation of a connection by which the server ends
// a session's earlier ones. ended is true if the session has such a connection, or the grant has no endpoint.
func (c *Cache) laterConn(s *Session, g *grant) (of *endpoint, generation uint32, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	generation = s.generations[g]
	for _, e := range c.endpoints {
		if e.grant != g {
			continue
		}
		if conn := s.linkedBy(e); conn != nil && conn.generation == generation {
			return e, generation, true
		}
		of = e
	}
	return of, generation, of == nil
}

// refuse delivers a connection that has failed already, which ends the requests that wait for
// it.
func (c *Cache) refuse(s *Session, e *endpoint, cause error) {
	c.mu.Lock()
	_, open := c.sessions[s]
	if open && !e.removed.Load() {
		s.inbox = append(s.inbox, &conn{session: s, endpoint: e, err: unavailable(e.grant, cause)})
		s.arrived.Store(true)
	}
	c.mu.Unlock()
	s.wake()
}

// needsConn reports whether a session needs a connection to an endpoint.
func (c *Cache) needsConn(s *Session, e *endpoint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.sessions[s]
	return open && slices.Contains(c.endpoints, e)
}

// hasEndpoint reports whether sessions connect to an endpoint.
func (c *Cache) hasEndpoint(e *endpoint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.endpoints, e)
}

// deliver returns the session's connection to an endpoint, or nil if the session does not need
// it, also if the server cannot be reached. Unless there is one, it puts a new one into the session's
// inbox. If another connection of the session fails meanwhile, it dials again, because the server
// ends connections of that generation.
func (c *Cache) deliver(ctx context.Context, s *Session, e *endpoint, answer time.Duration) (*conn, error) {
	for {
		c.mu.Lock()
		generation, there := s.generations[e.grant], s.linkedBy(e)
		c.mu.Unlock()
		if there != nil {
			return there, nil
		}
		fresh, err := s.dial(ctx, e, generation, answer)
		c.mu.Lock()
		stale := generation != s.generations[e.grant]
		_, needed := c.sessions[s]
		needed = needed && slices.Contains(c.endpoints, e)
		if err == nil && needed && !stale {
			if there = s.linkedBy(e); there == nil { // otherwise somebody was faster
				s.inbox = append(s.inbox, fresh)
				s.arrived.Store(true)
				s.link(e).conn = fresh
				there = fresh
			}
		}
		c.mu.Unlock()
		if fresh != there {
			c.closeUnused([]*conn{fresh})
		}
		if !needed {
			err = nil
		}
		if !needed || !stale {
			s.wake()
			if p := c.table.Load().placeAt(e); there != nil && e.ringed() && p != nil {
				c.clients.accompany(s, *p)
			}
			return there, err
		}
	}
}

// addEndpoints adds new endpoints to the table, if their servers accept connections. Sessions
// that are connected to a grant of one of them are connected to that one as well, before the
// table has it; others will be when they need it. If that fails, no endpoint is added.
func (c *Cache) addEndpoints(ctx context.Context, endpoints []*endpoint) error {
	var changes []changeOfPlace
	for i, r := range c.table.Load().regions.all() {
		for _, e := range endpoints {
			if r.endpoint != nil && r.endpoint.grant == e.grant {
				changes = append(changes, changeOfPlace{r.endpoint, r.index, place{i, e, r.index}})
			}
		}
	}
	c.mu.Lock()
	c.endpoints = append(c.endpoints, endpoints...)
	c.mu.Unlock()
	err := c.reach(ctx, endpoints)
	if err == nil {
		err = c.follow(ctx, changes)
	}
	if err != nil {
		c.removeEndpoints(endpoints)
		return err
	}
	k := c.controller
	k.do(func() {
		k.publish(func(t *table) { t.endpoints = append(t.endpoints, endpoints...) })
		for _, e := range endpoints {
			if cause := c.forfeited(e.grant); cause != nil { // since the memory was granted
				k.lose(e.grant, cause, unavailable(e.grant, cause))
			}
		}
	})
	return nil
}

// reach checks that the servers of endpoints accept connections.
func (c *Cache) reach(ctx context.Context, endpoints []*endpoint) error {
	return forEach(len(endpoints), func(i int) error {
		g := endpoints[i].grant
		ctx, cancel := clock.WithAwakeTimeout(ctx, controlTimeout, context.DeadlineExceeded)
		defer cancel()
		qp, err := c.dial(ctx, g, redywire.Hello{Ticket: g.ticket, Batch: 1, Depth: 1}, 1)
		if err != nil {
			return fmt.Errorf("VM %s at %s: %w", g.vm, g.fabricAddr, err)
		}
		if err := qp.Close(); err != nil && !errors.Is(err, fabric.ErrDisconnected) {
			c.log.Warn("closing a connection", "vm", g.vm, "err", err)
		}
		return nil
	})
}

// changeOfPlace is a region's place, and the next one.
type changeOfPlace struct {
	from  *endpoint
	index uint32
	to    place
}

// follow makes sessions ready for regions that change their places, so that their requests do not
// wait: a session that has a connection to the place before gets one to the next, and if it uses the
// region, it imports it there.
func (c *Cache) follow(ctx context.Context, changes []changeOfPlace) error {
	type target struct {
		s *Session
		e *endpoint
	}
	want := map[target][]place{}
	c.mu.Lock()
	for s := range c.sessions {
		for _, change := range changes {
			before, t := s.links[change.from], target{s, change.to.endpoint}
			if before == nil {
				continue
			}
			places, counted := want[t]
			if _, used := before.uses[change.index]; used {
				places = append(places, change.to)
			}
			if len(places) > 0 || !counted && s.linkedBy(t.e) == nil {
				want[t] = places
			}
		}
	}
	c.mu.Unlock()
	all := slices.Collect(maps.Keys(want))
	return forEach(len(all), func(i int) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return c.prepare(ctx, all[i].s, all[i].e, want[all[i]], controlTimeout)
	})
}

// followRegions is follow for regions that move to new places. A session that is not made ready
// within ServerTimeout does not hinder the move, which may have a deadline: it connects and imports
// when it needs that.
func (c *Cache) followRegions(ctx context.Context, places []place) error {
	t := c.table.Load()
	var changes []changeOfPlace
	for _, p := range places {
		if r := t.regions.at(p.region); r.endpoint != nil {
			changes = append(changes, changeOfPlace{r.endpoint, r.index, p})
		}
	}
	ready, cancel := clock.WithAwakeTimeout(ctx, c.cfg.ServerTimeout, context.DeadlineExceeded)
	defer cancel()
	err := c.follow(ready, changes)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		c.log.Warn("requests wait for connections while regions move", "err", err)
	}
	return nil
}

// removeEndpoints removes endpoints from the table, and from what sessions may connect to, in one
// step of the controller. Sessions close their connections to them.
func (c *Cache) removeEndpoints(endpoints []*endpoint) {
	if len(endpoints) == 0 {
		return
	}
	gone := func(e *endpoint) bool { return e.removed.Load() }
	var unused []*conn // of sessions that did nothing since
	c.update(func(t *table) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, e := range endpoints {
			e.removed.Store(true)
		}
		c.endpoints, t.endpoints = slices.DeleteFunc(c.endpoints, gone), slices.DeleteFunc(t.endpoints, gone)
		t.removals++
		for s := range c.sessions {
			maps.DeleteFunc(s.links, func(e *endpoint, _ *link) bool { return e.removed.Load() })
			maps.DeleteFunc(s.generations, func(g *grant, _ uint32) bool {
				return !slices.ContainsFunc(c.endpoints, func(e *endpoint) bool { return e.grant == g })
			})
			unused = append(unused, s.takeUnused(gone)...)
		}
	})
	c.closeUnused(unused)
}

// takeUnused removes the connections to some endpoints from a session's inbox, and what was
// imported over them. It is called under Cache.mu.
func (s *Session) takeUnused(of func(*endpoint) bool) (unused []*conn) {
	s.imports = slices.DeleteFunc(s.imports, func(i imported) bool { return of(i.conn.endpoint) })
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
