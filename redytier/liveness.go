package redytier

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/clock"
)

// This file decides whether a server is lost to which a connection has failed, or which
// the manager does not hear.

// connFailed finds out what became of a server to which a connection has failed: if
// it still answers, the session gets a new connection, else its memory is lost.
// The session's goroutine; it returns at once.
func (c *Cache) connFailed(failed *conn, cause error) {
	s, g := failed.session, failed.endpoint.grant
	endpoints := []*endpoint{failed.endpoint}
	c.mu.Lock()
	var stale []*conn
	if failed.generation == s.generations[g] {
		s.generations[g]++
		s.inbox = slices.DeleteFunc(s.inbox, func(conn *conn) bool {
			gone := conn.endpoint.grant == g
			if gone {
				stale, endpoints = append(stale, conn), append(endpoints, conn.endpoint)
			}
			return gone
		})
	}
	c.mu.Unlock()
	for _, conn := range stale {
		if err := conn.close(); err != nil {
			c.log.Warn("closing an unused connection", "vm", g.vm, "err", err)
		}
	}
	for _, l := range endpoints {
		s.unsettled.Add(1)
		g.unsettled.Add(1)
		settled := sync.OnceFunc(func() {
			g.unsettled.Add(-1)
			s.unsettled.Done()
		})
		if !c.background.Go(func() { c.reconnect(s, l, cause, settled) }) {
			settled()
		}
	}
}

// reconnect gives a session a connection in the place of one that failed, unless
// nobody owes it that any more, or loses the grant. Where the failure says nothing
// against the server, it is asked again, for its memory is there. It calls settled as
// soon as what had failed cannot take effect any more.
func (c *Cache) reconnect(s *Session, l *endpoint, cause error, settled func()) {
	defer settled()
	late := 0
	for wait := firstPause; l.grant.lost.Load() == nil && c.needsConn(s, l); wait = min(2*wait, longPause) {
		ctx, cancel := clock.WithAwakeTimeout(c.ctx, reconnectTimeout, context.DeadlineExceeded)
		err := c.deliver(ctx, s, l)
		cancel()
		switch {
		case err == nil:
			c.log.Info("connected again", "vm", l.grant.vm, "after", cause)
			c.changed()
			return
		case c.ctx.Err() != nil || !c.hasEndpoint(l):
			return
		case !c.inconclusive(l.grant, err, &late):
			c.lose(l.grant, errors.Join(cause, err))
			return
		}
		if errors.Is(err, ErrNoRoom) {
			settled() // the server has been asked, and has ended what was before
		}
		c.log.Warn("not connected again", "vm", l.grant.vm, "after", cause, "again in", wait, "err", err)
		if !clock.Sleep(c.ctx, wait) {
			return
		}
	}
}

// needsConn says whether a session is to have a connection over a endpoint.
func (c *Cache) needsConn(s *Session, l *endpoint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.sessions[s]
	return open && slices.Contains(c.endpoints, l)
}

// reconnectTimeout is how long a server may take to answer when a session connects
// to it again, before it is taken for lost, while this process runs.
const reconnectTimeout = 2 * time.Second

// maxLate is how often in a row a server that answers its control API may take longer
// than reconnectTimeout to let itself be connected to.
const maxLate = 4

// inconclusive says whether an attempt to connect to a server failed for a reason that says
// nothing of the memory there: the server has no room, this process lacks what a
// connection takes, or time ran out although the server answers otherwise. late counts
// those of the last kind.
func (c *Cache) inconclusive(g *grant, err error, late *int) bool {
	if errors.Is(err, ErrNoRoom) || isLocal(err) {
		return true
	}
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return false
	}
	*late++
	return *late < maxLate && g.checkAlive(c.ctx) == nil
}

// errLocal marks a failure of this process's own.
var errLocal = errors.New("redytier: out of local resources")

// isLocal says whether an error comes of what this process or its machine lacks.
func isLocal(err error) bool {
	for _, own := range []error{errLocal, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}

// A server that the manager does not hear is asked every ServerTimeout for defaultSuspicion,
// and every seldom of them from then on.
const (
	defaultSuspicion = 2 * time.Minute
	slowFactor       = 5
)

// checkSuspected finds out what became of a server that the manager does not hear. What counts
// is whether it answers here: as long as it does, its memory is used. Over some
// transports a session would not notice that a server is gone, so it is asked again and
// again while the cache has memory there: nobody says that the manager hears it again.
func (c *Cache) checkSuspected(g *grant, reason error) {
	if g.suspected.Swap(true) {
		offer(g.suspicion)
		return
	}
	looking := c.background.Go(func() {
		defer g.suspected.Store(false)
		late := 0
		used := func(l *endpoint) bool { return l.grant == g }
		for since := time.Now(); g.lost.Load() == nil; {
			c.mu.Lock()
			holds := slices.ContainsFunc(c.endpoints, used)
			c.mu.Unlock()
			if !holds {
				return
			}
			switch err := c.probe(c.ctx, g); {
			case err == nil:
				late = 0
			case c.ctx.Err() != nil:
				return
			case !c.inconclusive(g, err, &late):
				c.lose(g, errors.Join(reason, err))
				return
			}
			wait := c.cfg.ServerTimeout
			if time.Since(since) > c.cfg.suspicion && late == 0 {
				wait *= slowFactor
			}
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-g.suspicion:
				since = time.Now()
			case <-c.ctx.Done():
			}
			timer.Stop()
		}
	})
	if !looking {
		g.suspected.Store(false)
	}
}

// This file bounds how long a server may leave its cache without an answer
// (Config.ServerTimeout).
//
// A batch in a server's ring is answered by the server's process, which may be stopped or
// stuck, while its kernel, its NIC or its memory go on as if nothing were the matter. So
// sessions look at a clock while they wait. It is one number of the cache's, of beats: to
// look at it costs a load, and no owner has to ask for the time. It is counted by this
// process: if that stands still itself, no server is accused of it.

const (
	// A connection is given up at the first beat after silentBeats in which its owner
	// looked in vain; the first of them may be a short one.
	silentBeats     = 4
	beatsPerTimeout = silentBeats + 1
)

var errNoAnswer = errors.New("no answer in time")

// beats counts, and has those look who sleep, until the cache is deleted.
func (c *Cache) beats() {
	ticker := time.NewTicker(max(c.cfg.ServerTimeout/beatsPerTimeout, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.ctx.Done():
			return
		}
		c.beat.Add(1)
		c.mu.Lock()
		for s := range c.sessions {
			for _, conn := range s.conns {
				if conn.ring != nil && conn.qp != nil {
					conn.qp.Wake()
				}
			}
		}
		c.mu.Unlock()
	}
}

// whileAlive makes a call to a grant's server that takes as long as its memory is large. It
// ends the call where the server, asked for something else meanwhile, answers nothing, or
// is lost.
func (g *grant) whileAlive(caller context.Context, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(caller)
	var asking sync.WaitGroup
	asking.Go(func() {
		for clock.Sleep(ctx, g.timeout/2) {
			if err := g.checkAlive(ctx); err != nil {
				cancel(err)
			}
		}
	})
	err := call(ctx)
	if err != nil && ctx.Err() != nil && caller.Err() == nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	cancel(nil)
	asking.Wait()
	return err
}

// checkAlive is nil where the server answers, be it a refusal, and is not lost.
func (g *grant) checkAlive(ctx context.Context) error {
	if cause := g.lost.Load(); cause != nil {
		return *cause
	}
	ask, cancel := clock.WithAwakeTimeout(ctx, g.timeout, context.DeadlineExceeded)
	defer cancel()
	_, err := g.control().Status(ask, connect.NewRequest(&serverv1.StatusRequest{}))
	if err == nil || connect.IsWireError(err) || ctx.Err() != nil {
		return nil
	}
	return unavailable(g, errors.Join(errNoAnswer, err))
}
