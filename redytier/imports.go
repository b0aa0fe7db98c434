package redytier

import (
	"context"
	"time"

	"github.com/redykv/redykv/internal/fabric"
)

// This file imports regions over the connections of sessions, when a session first uses a region,
// and before regions move. Over some fabrics the server registers a region then, which pins its
// memory. A goroutine of the cache imports, puts the handle into the session's imports, and wakes
// the session.

// use is a session's use of a region over a connection.
type use struct {
	region int // its number
	stage  stage
}

type stage uint8

const (
	planned stage = iota // by the session of a client thread that replaces one which has imported it
	wanted               // it is in link.wanted
	usable               // imported, and the handle delivered
)

// imported is a handle for a session, or the end of a connection.
type imported struct {
	conn   *conn
	index  uint32
	remote fabric.Remote
	err    error
}

// want notes that the session needs a connection to a place and, if it has no ring, the region
// there. It is called under Cache.mu.
func (s *Session) want(p place) *link {
	l := s.link(p.endpoint)
	if u, used := l.uses[p.index]; !p.endpoint.ringed() && (!used || u.stage == planned) {
		l.uses[p.index] = use{p.region, wanted}
		l.wanted = append(l.wanted, p)
	}
	return l
}

// bring imports the regions that a session wants over a connection, or marks the grant as lost.
// It tries again if a failure is inconclusive, for a time; then the connection fails.
func (c *Cache) bring(conn *conn) {
	e := conn.endpoint
	for tries := newAttempts(); e.grant.lost.Load() == nil; {
		more, err := c.importNext(c.ctx, conn)
		switch {
		case err == nil && more:
			tries = newAttempts()
			continue
		case err == nil || c.ctx.Err() != nil || !c.hasEndpoint(e):
			return
		case c.conclusive(e.grant, err, tries):
			c.lose(e.grant, err)
			return
		case time.Since(tries.since) > controlTimeout:
			c.handOver(imported{conn: conn, err: err})
			return
		}
		c.log.Warn("importing a region", "vm", e.grant.vm, "again in", tries.wait, "err", err)
		if !tries.pause(c.ctx) {
			return
		}
	}
}

// prepare makes places of one endpoint usable for a session, without a second attempt.
func (c *Cache) prepare(ctx context.Context, s *Session, e *endpoint, places []place, answer time.Duration) error {
	c.mu.Lock()
	for _, p := range places {
		s.want(p)
	}
	c.mu.Unlock()
	conn, err := c.deliver(ctx, s, e, answer)
	for more := conn != nil; more && err == nil; {
		more, err = c.importNext(ctx, conn)
	}
	return err
}

// importNext imports the next region that a session wants over a connection. It returns false if
// there is none, or the connection has ended. Imports over a connection wait for each other.
func (c *Cache) importNext(ctx context.Context, conn *conn) (bool, error) {
	select {
	case conn.importing <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-conn.importing }()
	g := conn.endpoint.grant
	p, some := c.nextWanted(conn)
	if !some {
		return false, nil
	}
	r, err := importRegion(ctx, conn.qp, g, int(p.index), c.RegionSize())
	switch {
	case err == nil:
		c.handOver(imported{conn: conn, index: p.index, remote: r})
		c.clients.accompany(conn.session, p)
	case p.index >= g.regions.Load():
		c.dropWanted(conn) // it was released meanwhile
	case conn.qp.Err() != nil:
		c.handOver(imported{conn: conn, err: err})
		return false, nil
	default:
		return false, err
	}
	return true, nil
}

// linkOf returns the link of a session that uses a connection, or nil. It is called under
// Cache.mu.
func (c *Cache) linkOf(conn *conn) *link {
	_, open := c.sessions[conn.session]
	if l := conn.session.links[conn.endpoint]; open && l != nil && l.conn == conn {
		return l
	}
	return nil
}

// nextWanted returns the place that a session has wanted longest over a connection. If there is
// none, the work on the link ends.
func (c *Cache) nextWanted(conn *conn) (p place, some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.linkOf(conn)
	if l == nil {
		return p, false
	}
	if len(l.wanted) == 0 {
		l.working = false
		return p, false
	}
	return l.wanted[0], true
}

// handOver puts a handle, or the end of a connection, into the imports of the session.
func (c *Cache) handOver(i imported) {
	s := i.conn.session
	c.mu.Lock()
	if l := c.linkOf(i.conn); l != nil {
		if i.err == nil {
			l.uses[i.index] = use{l.wanted[0].region, usable}
			l.wanted = l.wanted[1:]
		}
		s.imports = append(s.imports, i)
		s.arrived.Store(true)
	}
	c.mu.Unlock()
	s.wake()
}

// dropWanted gives up the place that a session has wanted longest over a connection.
func (c *Cache) dropWanted(conn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.linkOf(conn); l != nil {
		delete(l.uses, l.wanted[0].index)
		l.wanted = l.wanted[1:]
	}
}
