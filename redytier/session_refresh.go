package redytier

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/internal/epoch"
	"github.com/redykv/redykv/internal/fabric"
)

// This file updates a session after a change of its cache. A change publishes a new table;
// the session compares the pointer for every operation, and calls refresh if it differs.
//
// While operations are pending, a session is inside an epoch; while writes are pending, it is
// also inside a write epoch. It moves to a table's epochs when all requests from before that
// table are settled (drained). When an epoch has passed, no request of an earlier table is
// pending; when a write epoch has passed, no write of an earlier table is, and none will be
// issued by one. A region moves after a write epoch (A40), and its memory is returned after an
// epoch (A42).
//
// A move does not wait for all requests, because a session may have reads that it does not poll
// while its owner waits for something else: even for a write to the region that moves.

// refresh updates the session to the cache's current table.
func (s *Session) refresh() {
	c := s.cache
	t := c.table.Load()
	s.table = t
	if c.deleted.Load() {
		s.fail()
		return
	}
	coming := s.takeInbox()
	for _, conn := range s.conns {
		conn.leaving = !slices.Contains(t.endpoints, conn.endpoint) && !slices.Contains(coming, conn.endpoint)
		if cause := conn.endpoint.grant.lost.Load(); cause != nil {
			conn.fail(*cause)
		}
		conn.mark = conn.issued()
	}
	for i := len(t.regions); i < len(s.queues); i++ {
		s.queues[i].drop(s, fmt.Errorf("%w: the cache has shrunk to %d bytes", ErrOutOfRange, t.capacity))
	}
	s.queues = slices.Grow(s.queues[:min(len(s.queues), len(t.regions))], len(t.regions))[:len(t.regions)]
	for i := range s.queues {
		s.queues[i].bind(s, i, &t.regions[i])
	}
	s.draining = true
}

// fail fails all requests because the cache was deleted.
func (s *Session) fail() {
	s.gone = ErrDeleted
	for _, conn := range s.conns {
		conn.fail(ErrDeleted)
	}
	for i := range s.queues {
		s.queues[i].gate = 0 // so that the rest of a request fails as well
		s.queues[i].drop(s, ErrDeleted)
	}
}

// drained moves to the epochs of the session's table once no earlier request is pending, and
// closes connections to removed endpoints.
func (s *Session) drained() {
	for _, conn := range s.conns {
		if !conn.passed(conn.mark) {
			return
		}
	}
	s.draining = false
	stays := slices.DeleteFunc(slices.Clone(s.conns), func(c *conn) bool { return c.leaving })
	if len(stays) < len(s.conns) {
		gone := s.conns
		s.setConns(stays)
		for _, conn := range gone {
			if slices.Contains(stays, conn) {
				continue
			}
			if err := conn.close(); err != nil && !errors.Is(err, fabric.ErrDisconnected) {
				s.cache.log.Warn("closing a connection", "vm", conn.endpoint.grant.vm, "err", err)
			}
		}
	}
	s.handle.Reenter(s.table.epoch)
	if s.writing > 0 {
		s.writes.Reenter(s.table.writeEpoch)
	}
}

// connOver returns the session's connection to a region.
func (s *Session) connOver(r *region) *conn {
	if r.endpoint == nil {
		return &conn{session: s, err: *r.cause}
	}
	return s.connOf(r.endpoint)
}

// connOf returns the session's connection to an endpoint.
func (s *Session) connOf(e *endpoint) *conn {
	for _, conn := range s.conns {
		if conn.endpoint == e {
			return conn
		}
	}
	return &conn{session: s, endpoint: e, err: unavailable(e.grant, errNoConnection)}
}

var errNoConnection = errors.New("not connected")

// takeInbox adds the connections in the inbox, in place of failed ones. It returns the
// endpoints that new sessions connect to, some of which may not be in the table yet.
func (s *Session) takeInbox() (endpoints []*endpoint) {
	s.cache.mu.Lock()
	inbox := s.inbox
	s.inbox = nil
	endpoints = slices.Clone(s.cache.endpoints)
	s.cache.mu.Unlock()
	if len(inbox) == 0 {
		return endpoints
	}
	conns := slices.Clone(s.conns)
	for _, arrived := range inbox {
		i := slices.IndexFunc(conns, func(c *conn) bool { return c.endpoint == arrived.endpoint })
		switch {
		case i < 0:
			conns = append(conns, arrived)
		case conns[i].err != nil:
			_ = conns[i].close() // its queue pair is closed already
			conns[i] = arrived
		default: // it did not fail
			_ = arrived.close()
		}
	}
	s.setConns(conns)
	return endpoints
}

// setConns changes the session's connections. Other goroutines read them under Cache.mu; the
// owner needs the lock for changes only.
func (s *Session) setConns(conns []*conn) {
	if s.parker != nil {
		s.parker.close()
		s.parker = nil
	}
	s.cache.mu.Lock()
	s.conns = conns
	s.cache.mu.Unlock()
}

// wake ends the sleep of a parked owner. It is called under Cache.mu, and may run while the
// owner closes a connection.
func (s *Session) wake() {
	offer(s.woken)
	for _, c := range s.conns {
		if c.qp != nil {
			c.qp.Wake()
		}
	}
}

// removeSession closes a session's connections and removes it. The last session of a deleted
// cache closes the provider, which owns the memory.
func (c *Cache) removeSession(s *Session) error {
	if s.parker != nil {
		s.parker.close()
	}
	c.mu.Lock()
	delete(c.sessions, s)
	s.counts.addTo(&c.past)
	conns := append(s.conns, s.inbox...)
	s.inbox = nil
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
