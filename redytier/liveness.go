package redytier

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
)

// This file decides whether a server is lost after a connection to it has failed, or if the
// manager suspects it.

// reconnectTimeout is how long attempts to reach a server are repeated, while this process runs.
// A server that refuses, resets or ignores all of them is lost, unless it answers its control API.
const reconnectTimeout = 2 * time.Second

// maxLate is the number of consecutive times that a server may answer its control API only, before
// it is lost.
const maxLate = 4

// persist repeats an attempt to reach the grant's server, each within the context that it gets,
// until it succeeds, reconnectTimeout has passed, or the server or this machine says why it fails.
func (g *grant) persist(ctx context.Context, attempt func(ctx context.Context) error) error {
	soon, cancel := clock.WithAwakeTimeout(ctx, g.reconnect, context.DeadlineExceeded)
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, g.reconnect/10) {
		err := attempt(soon)
		if err == nil || isShortage(err) || isRefusal(err) || g.lost.Load() != nil || !clock.Sleep(soon, clock.Jitter(wait)) {
			return err
		}
	}
}

// inconclusive reports whether a failure to connect or to import does not mean that the server is
// lost: the server has no room or lacks resources, this machine lacks resources or has no network,
// or the server says over its control API that it lends the grant. late counts failures of the last
// kind.
func (c *Cache) inconclusive(ctx context.Context, g *grant, err error, late *int) bool {
	switch {
	case isShortage(err):
		return true
	case isRefusal(err):
		return false
	}
	*late++
	return *late < maxLate && g.checkLent(ctx) == nil
}

// isShortage reports whether a server has no room, or it or this machine lacks resources.
func isShortage(err error) bool {
	return errors.Is(err, ErrNoRoom) || errors.Is(err, fabric.ErrExhausted) || isLocal(err)
}

// isRefusal reports whether a server has answered that it does not lend what it was asked for.
func isRefusal(err error) bool {
	return errors.Is(err, fabric.ErrRejected) || errors.Is(err, fabric.ErrBadToken)
}

// readsWell reports whether a client thread reads a grant's memory over the connection that it
// has: a server that accepts no other connection may lend on.
func (c *Cache) readsWell(ctx context.Context, g *grant) bool {
	k, region := c.clients.reader(g)
	if k == nil {
		return false
	}
	ctx, cancel := clock.WithAwakeTimeout(ctx, c.cfg.ServerTimeout, context.DeadlineExceeded)
	defer cancel()
	read := make(chan error, 1)
	if err := k.Read(ctx, make([]byte, 1), c.table.Load().span(region).from, func(_ int, err error) { read <- err }); err != nil {
		return false
	}
	select {
	case err := <-read:
		return err == nil
	case <-ctx.Done():
		return false
	}
}

// errLocal marks failures in this process.
var errLocal = errors.New("redytier: out of local resources")

// isLocal reports whether an error is a lack of local resources, or of this machine's network.
func isLocal(err error) bool {
	own := []error{
		errLocal, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EADDRNOTAVAIL,
		syscall.ENETDOWN, syscall.ENETUNREACH,
	}
	if unresolved := (*net.DNSError)(nil); errors.As(err, &unresolved) {
		return !unresolved.IsNotFound
	}
	return slices.ContainsFunc(own, func(e error) bool { return errors.Is(err, e) })
}

// A suspected server is asked every ServerTimeout for the time defaultSuspicion, and
// slowFactor times less often afterwards.
const (
	defaultSuspicion = 2 * time.Minute
	slowFactor       = 5
)

// checkSuspected checks a server that the manager suspects. Its memory is used as long as it
// answers this client. Over some transports a session does not notice that a server is gone,
// so the server is asked repeatedly while the cache has memory there and the manager does not
// trust it.
func (c *Cache) checkSuspected(g *grant, reason error) {
	ctx, cancel := context.WithCancel(c.ctx)
	if !g.checking.CompareAndSwap(nil, &cancel) {
		cancel()
		offer(g.suspicion)
		return
	}
	end := func() {
		g.checking.CompareAndSwap(&cancel, nil)
		cancel()
	}
	if !c.background.Go(func() { defer end(); c.check(ctx, g, reason) }) {
		end()
	}
}

// trust ends the check of a server that the manager does not suspect any more.
func (c *Cache) trust(g *grant) {
	if cancel := g.checking.Swap(nil); cancel != nil {
		(*cancel)()
	}
}

// check is the loop of checkSuspected.
func (c *Cache) check(ctx context.Context, g *grant, reason error) {
	late := 0
	used := func(e *endpoint) bool { return e.grant == g }
	for since := time.Now(); g.lost.Load() == nil; {
		c.mu.Lock()
		holds := slices.ContainsFunc(c.endpoints, used)
		c.mu.Unlock()
		if !holds {
			return
		}
		switch err := c.probe(ctx, g); {
		case ctx.Err() != nil:
			return
		case err == nil:
			late = 0
		case !c.inconclusive(ctx, g, err, &late) && !c.readsWell(ctx, g) && ctx.Err() == nil:
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
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// The rest of this file bounds the time of a server's answers (Config.ServerTimeout).
//
// A batch in a server's ring is answered by the server's process, which may be stopped while
// its kernel, NIC and memory still work. So sessions check a clock while they wait: a counter
// of beats per cache, which costs one load to read. This process increments it, so a pause of
// this process does not count as a server's silence.

const (
	// A connection fails at the first beat after silentBeats without an answer; the first
	// of these may be short.
	silentBeats     = 4
	beatsPerTimeout = silentBeats + 1
)

var errNoAnswer = errors.New("no answer in time")

// beats counts, and wakes waiting sessions, until the cache is deleted.
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
		c.wakeSessions()
	}
}

// whileAlive makes a call to a grant's server whose duration depends on the size of its
// memory. It ends the call if the server does not answer status requests meanwhile, or is
// lost.
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

// checkAlive returns nil if the server answers, even with an error, and is not lost.
func (g *grant) checkAlive(ctx context.Context) error {
	return g.askStatus(ctx, &serverv1.StatusRequest{}, func(error) bool { return true })
}

// checkLent is checkAlive for a server that must not say that it does not lend the grant.
func (g *grant) checkLent(ctx context.Context) error {
	return g.askStatus(ctx, &serverv1.StatusRequest{CacheId: g.cache, Grant: g.id, Ticket: g.ticket[:]},
		func(answer error) bool { return connect.CodeOf(answer) != connect.CodeNotFound })
}

// askStatus returns nil if the server's answer is nil or as it should be, or ctx has ended, and the
// server is not lost.
func (g *grant) askStatus(ctx context.Context, req *serverv1.StatusRequest, ok func(answer error) bool) error {
	if cause := g.lost.Load(); cause != nil {
		return *cause
	}
	ask, cancel := clock.WithAwakeTimeout(ctx, g.timeout, context.DeadlineExceeded)
	defer cancel()
	switch _, err := g.control().Status(ask, connect.NewRequest(req)); {
	case err == nil || ctx.Err() != nil || connect.IsWireError(err) && ok(err):
		return nil
	case connect.IsWireError(err):
		return unavailable(g, err)
	default:
		return unavailable(g, errors.Join(errNoAnswer, err))
	}
}
