package redytier

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/internal/fabric"
)

// This file is how a session keeps up with its cache. Whoever changes the cache
// publishes a new table; the session compares the pointer for every operation, and
// takes notice in refresh. That pointer is all there is to compare: a table that
// others work by already is one that a session asked later finds.
//
// Between its first operation under way and its last a session is inside an epoch.
// It moves to the epoch of a table when everything that it issued before it knew
// that table is settled (drained). So when an epoch has passed, all sessions work by
// its table, and nothing of before is under way any more: which is what a region
// waits for before it moves (A40) or is given back (A42).

// refresh takes notice of what changed in the cache.
func (s *Session) refresh() {
	c := s.cache
	t := c.table.Load()
	s.table = t
	if c.deleted.Load() {
		s.leave()
		return
	}
	coming := s.takeMail()
	for _, conn := range s.conns {
		conn.leaving = !slices.Contains(t.links, conn.link) && !slices.Contains(coming, conn.link)
		if cause := conn.link.grant.lost.Load(); cause != nil {
			conn.fail(*cause)
		}
		conn.mark = conn.issued()
	}
	for i := len(t.regions); i < len(s.lanes); i++ {
		s.lanes[i].drop(s, fmt.Errorf("%w: the cache has shrunk to %d bytes", ErrOutOfRange, t.capacity))
	}
	s.lanes = slices.Grow(s.lanes[:min(len(s.lanes), len(t.regions))], len(t.regions))[:len(t.regions)]
	for i := range s.lanes {
		s.lanes[i].bind(s, i, &t.regions[i])
	}
	s.draining = true
}

// leave ends everything: the cache was deleted.
func (s *Session) leave() {
	s.gone = ErrDeleted
	for _, conn := range s.conns {
		conn.fail(ErrDeleted)
	}
	for i := range s.lanes {
		s.lanes[i].gate = 0 // what comes to it yet, the rest of a request, fails as well
		s.lanes[i].drop(s, ErrDeleted)
	}
}

// drained moves to the epoch of the session's table once nothing of before is
// under way, and closes connections that the table has no use for.
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
				s.cache.log.Warn("closing a connection", "vm", conn.link.grant.vm, "err", err)
			}
		}
	}
	s.handle.Reenter(s.table.epoch)
}

// connOver is the session's way to a region.
func (s *Session) connOver(r *region) *conn {
	if r.link == nil {
		return &conn{session: s, err: *r.cause}
	}
	return s.connOf(r.link)
}

// connOf is the session's connection over a link.
func (s *Session) connOf(l *link) *conn {
	for _, conn := range s.conns {
		if conn.link == l {
			return conn
		}
	}
	return &conn{session: s, link: l, err: unavailable(l.grant, errNoConnection)}
}

var errNoConnection = errors.New("not connected")

// takeMail puts connections to use that others made for the session; a new one
// takes the place of a dead one. It returns the links that new sessions connect over:
// those that are not in the table yet are about to be.
func (s *Session) takeMail() (links []*link) {
	s.cache.mu.Lock()
	mail := s.mail
	s.mail = nil
	links = slices.Clone(s.cache.links)
	s.cache.mu.Unlock()
	if len(mail) == 0 {
		return links
	}
	conns := slices.Clone(s.conns)
	for _, fresh := range mail {
		i := slices.IndexFunc(conns, func(c *conn) bool { return c.link == fresh.link })
		switch {
		case i < 0:
			conns = append(conns, fresh)
		case conns[i].err != nil:
			_ = conns[i].close() // its queue pair is closed already
			conns[i] = fresh
		default: // it did not die after all
			_ = fresh.close()
		}
	}
	s.setConns(conns)
	return links
}

// setConns changes the session's connections. Those who wake the session look at
// them under the cache's mu; the owner needs it for changes only.
func (s *Session) setConns(conns []*conn) {
	if s.parker != nil {
		s.parker.close()
		s.parker = nil
	}
	s.cache.mu.Lock()
	s.conns = conns
	s.cache.mu.Unlock()
}

// wake makes a parked owner look at the cache's state and at whatever else it
// looks at. Called under the cache's mu; a connection that its owner closes
// meanwhile does not mind.
func (s *Session) wake() {
	offer(s.kick)
	for _, c := range s.conns {
		if c.qp != nil {
			c.qp.Wake()
		}
	}
}

// dismiss closes a session's connections and forgets it. The last session of a
// deleted cache closes the provider, under which its memory lives.
func (c *Cache) dismiss(s *Session) error {
	if s.parker != nil {
		s.parker.close()
	}
	c.mu.Lock()
	delete(c.sessions, s)
	c.past.absorb(&s.counts)
	conns := append(s.conns, s.mail...)
	s.mail = nil
	last := c.ended && len(c.sessions) == 0
	c.mu.Unlock()
	s.handle.Leave()
	s.handle.Unregister()
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
