package redytier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// NewSession returns a session for up to depth pending operations, connected to every VM of
// the cache. Requests to lost VMs fail.
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
		cache: c, id: rand.Uint64(), wrap: wrap, longest: c.cfg.longest, woken: make(chan struct{}, 1),
		ops: make([]op, depth), errs: make([]error, depth), free: make([]uint32, depth),
		ready: newFIFO[uint32](depth), generations: map[*grant]uint32{},
	}
	s.waits.Store(c.cfg.WaitForLost && wrap == 0) // a log has the next tier instead
	for i := range s.free {
		s.free[i] = uint32(depth - 1 - i)
	}
	// Deleting and registering exclude each other, so that the provider stays open for a
	// session that is being set up.
	c.mu.Lock()
	if c.deleted.Load() {
		c.mu.Unlock()
		return nil, ErrDeleted
	}
	s.handle, s.writes = c.epochs.Register(), c.writeEpochs.Register()
	c.sessions[s] = struct{}{}
	endpoints := slices.Clone(c.endpoints)
	c.mu.Unlock()

	ctx, cancel := clock.WithAwakeTimeout(context.Background(), controlTimeout, context.DeadlineExceeded)
	defer cancel()
	for _, e := range endpoints {
		conn, err := s.dial(ctx, e, 0)
		if err != nil && e.grant.lost.Load() == nil && c.hasEndpoint(e) { // not removed meanwhile
			s.closed = true
			return nil, errors.Join(&unreachable{e.grant, fmt.Errorf("redytier: new session of cache %s: %w", c.ID(), err)}, c.removeSession(s))
		}
		if err == nil {
			s.setConns(append(s.conns, conn))
		}
	}
	s.handle.Enter()
	s.refresh()
	s.drained()
	s.handle.Leave()
	return s, nil
}

// unreachable is the error of a new session that has no connection to a grant.
type unreachable struct {
	grant *grant
	error
}

func (e *unreachable) Unwrap() error { return e.error }

// dial makes a connection of a generation for the session. Any goroutine may call it.
func (s *Session) dial(ctx context.Context, e *endpoint, generation uint32) (*conn, error) {
	ctx, cancel := clock.WithAwakeTimeout(ctx, controlTimeout, context.DeadlineExceeded)
	defer cancel()
	c := &conn{session: s, endpoint: e, generation: generation}
	if err := c.dial(ctx, len(s.ops)); err != nil {
		return nil, errors.Join(fmt.Errorf("VM %s at %s: %w", e.grant.vm, e.grant.fabricAddr, err), c.close())
	}
	return c, nil
}

func (c *conn) dial(ctx context.Context, depth int) error {
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
	qp, err := cache.dial(ctx, g, hello, room)
	if err != nil {
		return err
	}
	c.qp = qp
	if c.ring != nil {
		return c.importRing(ctx)
	}
	c.early, _ = qp.(fabric.Prefetcher)
	c.remotes, err = importRegions(ctx, qp, g, cache.RegionSize())
	return err
}

// dial connects to a grant's server.
func (c *Cache) dial(ctx context.Context, g *grant, hello redywire.Hello, depth int) (fabric.QueuePair, error) {
	qp, err := c.port(g).Dial(ctx, g.fabricAddr, hello.Encode(), depth)
	if redywire.IsNoRoom(err) {
		return nil, fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return qp, err
}

// importRegions imports the regions of a grant over qp.
func importRegions(ctx context.Context, qp fabric.QueuePair, g *grant, size int64) (remotes []fabric.Remote, err error) {
	for i, token := range g.tokens {
		if i >= int(g.regions.Load()) {
			break
		}
		r, err := qp.Import(ctx, token)
		if err != nil {
			if i >= int(g.regions.Load()) {
				break // released meanwhile
			}
			return nil, fmt.Errorf("region %d: %w", i, err)
		}
		if r.Size < size {
			return nil, fmt.Errorf("region %d has %d bytes, want %d", i, r.Size, size)
		}
		remotes = append(remotes, r)
	}
	return remotes, nil
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

// remoteOf returns the handle of a region for one-sided operations; connections with rings
// name regions by number.
func (c *conn) remoteOf(index uint32) fabric.Remote {
	if int(index) < len(c.remotes) {
		return c.remotes[index]
	}
	return fabric.Remote{}
}
