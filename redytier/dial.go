package redytier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// NewSession returns a session for up to depth pending operations. It connects to nothing: the
// session's requests do.
func (c *Cache) NewSession(depth int) (*Session, error) {
	return c.newSession(depth, 0)
}

// newSession is NewSession for requests that continue at address 0 after wrap, unless that
// is 0.
func (c *Cache) newSession(depth int, wrap int64) (*Session, error) {
	if depth < 1 || depth > MaxDepth {
		return nil, fmt.Errorf("redytier: session depth %d, want 1 to %d", depth, MaxDepth)
	}
	s := &Session{
		cache: c, id: rand.Uint64(), wrap: wrap, longest: c.cfg.longest, bed: bed{woken: make(chan struct{}, 1)},
		ops: make([]op, depth), errs: make([]error, depth), free: make([]uint32, depth),
		ready: newFIFO[uint32](depth), conns: map[*endpoint]*conn{}, links: map[*endpoint]*link{}, generations: map[*grant]uint32{},
		timing: newTiming(),
	}
	s.unopened = &conn{session: s}
	s.waits.Store(c.cfg.WaitForLost && wrap == 0) // a log has the next tier instead
	for i := range s.free {
		s.free[i] = uint32(depth - 1 - i)
	}
	// Deleting and registering exclude each other, so that the provider stays open for the
	// session.
	c.mu.Lock()
	if c.deleted.Load() || c.taken.Load() {
		c.mu.Unlock()
		return nil, cmp.Or(c.Err(), ErrDeleted)
	}
	s.handle, s.writes = c.epochs.Register(), c.writeEpochs.Register()
	c.sessions[s] = struct{}{}
	c.mu.Unlock()
	s.handle.Enter()
	s.refresh()
	s.drained()
	s.handle.Leave()
	return s, nil
}

// dial makes a connection of a generation for the session, over which no region is imported yet.
// The server has to answer within a time. Any goroutine may call it.
func (s *Session) dial(ctx context.Context, e *endpoint, generation uint32, answer time.Duration) (*conn, error) {
	c := &conn{session: s, endpoint: e, generation: generation, importing: make(chan struct{}, 1)}
	if err := c.dial(ctx, len(s.ops), answer); err != nil {
		return nil, errors.Join(fmt.Errorf("VM %s at %s: %w", e.grant.vm, e.grant.fabricAddr, err), c.close())
	}
	return c, nil
}

func (c *conn) dial(ctx context.Context, depth int, answer time.Duration) error {
	cache, g := c.session.cache, c.endpoint.grant
	hello := redywire.Hello{
		Ticket: g.ticket, Batch: c.endpoint.batch, Depth: c.endpoint.depth,
		Owner: c.session.id, Generation: c.generation,
	}
	// A request may span two regions.
	room := 2 * depth
	if hello.Ringed() {
		r, err := newRing(cache.provider, c.endpoint, room)
		if err != nil {
			return fmt.Errorf("%w: %w", errLocal, err)
		}
		c.ring = r
		hello.Responses = r.responses.Token()
		room = hello.Depth
	} else {
		c.onesided = newFIFO[onesided](room)
	}
	soon, cancel := clock.WithAwakeTimeout(ctx, answer, context.DeadlineExceeded)
	defer cancel()
	qp, err := cache.dial(soon, g, hello, room)
	if err != nil {
		return err
	}
	c.qp = qp
	if c.ring != nil {
		return c.importRing(soon)
	}
	c.early, _ = qp.(fabric.Prefetcher)
	c.remotes = make([]fabric.Remote, len(g.tokens))
	return nil
}

// dial connects to a grant's server.
func (c *Cache) dial(ctx context.Context, g *grant, hello redywire.Hello, depth int) (fabric.QueuePair, error) {
	qp, err := c.port(g).Dial(ctx, g.fabricAddr, hello.Encode(), depth)
	if redywire.IsNoRoom(err) {
		return nil, fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return qp, err
}

// importRegion imports a region of a grant over qp. Its time does not depend on how many others
// are imported.
func importRegion(ctx context.Context, qp fabric.QueuePair, g *grant, i int, size int64) (fabric.Remote, error) {
	ctx, cancel := clock.WithAwakeTimeout(ctx, controlTimeout, context.DeadlineExceeded)
	defer cancel()
	r, err := qp.Import(ctx, g.tokens[i])
	if err != nil {
		return r, fmt.Errorf("region %d: %w", i, err)
	}
	if r.Size < size {
		return r, fmt.Errorf("region %d has %d bytes, want %d", i, r.Size, size)
	}
	return r, nil
}

func (c *conn) importRing(ctx context.Context) error {
	welcome, err := redywire.DecodeWelcome(c.qp.PeerPrivate())
	if err != nil {
		return err
	}
	if c.ring.requests, err = c.qp.Import(ctx, welcome.Requests); err != nil {
		return fmt.Errorf("request ring: %w", err)
	}
	if c.ring.requests.Size < int64(c.ring.size()) {
		return fmt.Errorf("request ring has %d bytes, want %d", c.ring.requests.Size, c.ring.size())
	}
	return nil
}

// remoteOf returns the handle of a region for one-sided operations, or zero if it is not imported;
// connections with rings name regions by number.
func (c *conn) remoteOf(index uint32) fabric.Remote {
	if int(index) < len(c.remotes) {
		return c.remotes[index]
	}
	return fabric.Remote{}
}

// reaches reports whether requests to a region with this handle can be issued: the connection is
// open and the region imported, or they fail.
func (c *conn) reaches(r fabric.Remote) bool { return r.Size > 0 || c.ring != nil || c.err != nil }
