package redytier

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redykv/redykv/internal/epoch"
	"github.com/redykv/redykv/internal/fabric"
)

// This file updates a session after a change of its cache. A change publishes a new table;
// the session compares the pointer for every operation, and calls refresh if it differs.
//
// While operations are pending, a session is inside an epoch; while writes are pending, it is
// also inside a write epoch. It moves to a table's epoch when all requests from before that table
// are settled (drained), and to its write epoch at once: connections with earlier requests are then
// marked as behind, until these are settled. When an epoch has passed, no request of an earlier
// table is pending; when a write epoch has passed, no write of an earlier table is, but for those
// of connections that are behind, and none will be issued by one. A region moves after a write epoch,
// when no connection to its server is behind (A40), and its memory is returned after an epoch (A42).
//
// A move does not wait for all requests, because a session may have reads that it does not poll
// while its owner waits for something else: even for a write to the region that moves. It does not
// wait for requests to other servers, one of which may not answer.

// refresh updates the session to the cache's current table. Its cost is that of the change: a
// region that did not change keeps its queue as it is.
func (s *Session) refresh() {
	c := s.cache
	before, t := s.table, c.table.Load()
	first := before == nil
	s.table = t
	if c.deleted.Load() {
		s.fail()
		return
	}
	for _, conn := range s.busy {
		if cause := conn.endpoint.grant.lost.Load(); cause != nil {
			conn.fail(*cause)
		}
		conn.mark = conn.issued()
	}
	if t.removals != s.removals {
		s.removals, s.leaving = t.removals, true
	}
	s.resize(t)
	arrived, imported := s.takeInbox()
	if waits := s.waits.Load(); before == nil || waits != s.waited {
		s.waited = waits
		before = &table{}
	}
	for i := range t.regions.changed(&before.regions) {
		s.queues[i].bind(s, i, t.regions.at(i))
	}
	s.rebind(arrived, imported)
	if s.draining = true; s.writing > 0 {
		s.fallBehind()
	}
	if !first && t.publication != nil {
		t.publication.reached()
	}
}

// resize sets the number of queues to that of the table's regions.
func (s *Session) resize(t *table) {
	n := t.regions.len()
	for i := n; i < len(s.queues); i++ {
		s.queues[i].drop(s, fmt.Errorf("%w: the cache has shrunk to %d bytes", ErrOutOfRange, t.capacity))
	}
	s.queues = slices.Grow(s.queues[:min(len(s.queues), n)], max(0, n-len(s.queues)))[:n]
}

// fail fails all requests because the cache was deleted.
func (s *Session) fail() {
	s.gone = ErrDeleted
	for _, conn := range s.conns {
		conn.fail(ErrDeleted)
	}
	s.unopened.err = ErrDeleted
	for i := range s.queues {
		s.queues[i].gate = 0 // so that the rest of a request fails as well
		s.queues[i].drop(s, ErrDeleted)
		s.queues[i].setSlow()
	}
}

// fallBehind marks connections with requests from before the session's table, which may be writes.
func (s *Session) fallBehind() {
	for _, conn := range s.busy {
		if !conn.passed(conn.mark) && !conn.behind.Load() {
			conn.behind.Store(true)
			s.lagging = append(s.lagging, conn)
		}
	}
}

// catchUp ends that for connections whose earlier requests are settled, or for all.
func (s *Session) catchUp(all bool) {
	s.lagging = slices.DeleteFunc(s.lagging, func(conn *conn) bool {
		over := all || conn.passed(conn.mark)
		if over {
			conn.behind.Store(false)
		}
		return over
	})
}

// drained moves to the write epoch of the session's table and, once no earlier request is pending,
// to its epoch. Then it closes connections to removed endpoints.
func (s *Session) drained() {
	if s.writing > 0 {
		s.writes.Reenter(s.table.writeEpoch)
	}
	s.catchUp(false)
	for _, conn := range s.busy {
		if !conn.passed(conn.mark) {
			return
		}
	}
	s.draining = false
	if s.leaving {
		s.leaving = false
		s.closeRemoved()
	}
	s.handle.Reenter(s.table.epoch)
}

// closeRemoved closes the connections to removed endpoints.
func (s *Session) closeRemoved() {
	for e, conn := range s.conns {
		if !e.removed.Load() {
			continue
		}
		delete(s.conns, e)
		s.unlist(conn)
		if err := conn.close(); err != nil && !errors.Is(err, fabric.ErrDisconnected) {
			s.cache.log.Warn("closing a connection", "vm", e.grant.vm, "err", err)
		}
	}
}

// unlist removes a connection that is about to be closed from the busy ones.
func (s *Session) unlist(gone *conn) {
	if gone.listed {
		gone.listed = false
		s.busy = slices.DeleteFunc(s.busy, func(c *conn) bool { return c == gone })
	}
}

// connOver returns the session's connection to a region.
func (s *Session) connOver(r *region) *conn {
	if r.endpoint == nil {
		return &conn{session: s, err: *r.cause}
	}
	return s.connOf(r.endpoint)
}

// connOf returns the session's connection to an endpoint, or its stand-in.
func (s *Session) connOf(e *endpoint) *conn {
	if conn := s.conns[e]; conn != nil {
		return conn
	}
	return s.unopened
}

// arrive takes connections and regions that have arrived, between changes of the table.
func (s *Session) arrive() {
	if s.gone == nil && s.table == s.cache.table.Load() { // otherwise refresh takes them
		s.rebind(s.takeInbox())
	}
}

// takeInbox adds the connections in the inbox, in place of failed ones, and the regions that were
// imported. It returns the endpoints of new connections, and whether there are regions.
func (s *Session) takeInbox() (arrived []*endpoint, imported bool) {
	if !s.arrived.Load() {
		return nil, false
	}
	s.cache.mu.Lock()
	inbox, imports := s.inbox, s.imports
	s.inbox, s.imports = nil, nil
	s.arrived.Store(false)
	s.cache.mu.Unlock()
	for _, conn := range inbox {
		e := conn.endpoint
		switch old := s.conns[e]; {
		case old != nil && old.err == nil:
			_ = conn.close() // it did not fail
			continue
		case old != nil:
			s.unlist(old)
			_ = old.close() // its queue pair is closed already
		}
		s.conns[e] = conn
		arrived = append(arrived, e)
	}
	for _, i := range imports {
		if i.err != nil {
			i.conn.fail(i.err)
			continue
		}
		i.conn.remotes[i.index] = i.remote
	}
	return arrived, len(imports) > 0
}

// rebind connects the queues of regions at endpoints to their new connections, and those that hold
// requests to regions that were imported. Other queues find these with their next request.
func (s *Session) rebind(arrived []*endpoint, imported bool) {
	if imported {
		for _, i := range s.holding {
			if q := &s.queues[i]; q.outdated() {
				q.bind(s, i, s.table.regions.at(i))
			}
		}
	}
	if len(arrived) == 0 {
		return
	}
	for i := range s.queues {
		if q := &s.queues[i]; slices.Contains(arrived, q.place) || slices.Contains(arrived, q.mirrorPlace) {
			q.bind(s, i, s.table.regions.at(i))
		}
	}
}

// recheck has the queues of a failed connection check their held requests, which may wait for
// an import over it.
func (s *Session) recheck(failed *conn) {
	for _, i := range s.holding {
		if q := &s.queues[i]; q.conn == failed || q.mirror == failed {
			q.changed = true
		}
	}
}

// removeSession closes a session's connections and removes it. The last session of a deleted
// cache closes the provider, which owns the memory.
func (c *Cache) removeSession(s *Session) error {
	s.bed.close()
	c.mu.Lock()
	delete(c.sessions, s)
	s.counts.addTo(&c.past)
	s.addFigures(&c.pastFigures)
	conns := slices.AppendSeq(s.inbox, maps.Values(s.conns))
	s.inbox, s.imports = nil, nil
	last := c.ended && len(c.sessions) == 0
	c.mu.Unlock()
	for _, h := range []*epoch.Handle{s.handle, s.writes} {
		h.Leave()
		h.Unregister()
	}
	var err error
	for _, conn := range conns {
		err = errors.Join(err, conn.close())
	}
	if last {
		err = errors.Join(err, c.closeProvider())
	}
	if err != nil && !errors.Is(err, fabric.ErrDisconnected) {
		return fmt.Errorf("redytier: close session: %w", err)
	}
	return nil
}
