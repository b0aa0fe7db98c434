package server

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
)

// This file gives a lent grant to the next client of its cache, the holder. The memory keeps its
// bytes, and the former holder is fenced out: its ticket and calls are refused, its connections
// and pulls end, and none of its accesses changes the memory afterwards.

// takeUp serves Connect for a holder that takes a grant up. It has these steps, which a
// repetition of the call takes again as far as they are not done:
//
//  1. The ticket is replaced, so that no connection, pull or call of former holders begins.
//  2. Their connections and pulls end.
//  3. The regions are fenced (fabric.Region.Fence): their tokens change, and a former holder that has
//     mapped or registered them reaches nothing any more.
//  4. The grant gets the new holder's configuration, and the ticket is published.
//
// Errors are NotFound for a grant that is not lent, FailedPrecondition for terms of a former
// holder, InvalidArgument for another region size, or those of Configure.
func (s *Server) takeUp(ctx context.Context, m *serverv1.ConnectRequest) (*connect.Response[serverv1.ConnectResponse], error) {
	t := m.GetTerms()
	id := grantID{t.GetCacheId(), t.GetGrant()}
	g, err := s.lentTo(id, t.GetHolder())
	if err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if t.GetRegionSize() != g.regionSize {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%v has regions of %d bytes, not %d", id, g.regionSize, t.GetRegionSize()))
	}
	g.changing.Lock()
	defer g.changing.Unlock()
	if err := s.succeed(g, t.GetHolder()); err != nil {
		return nil, err
	}
	if g.fenced < t.GetHolder() {
		if err := g.fence(ctx, t.GetHolder()); err != nil {
			return nil, err
		}
		if err := s.configure(g, &serverv1.ConfigureRequest{CacheId: id.cache, Grant: id.grant, Configuration: m.Configuration, Terms: t}); err != nil {
			return nil, err
		}
		g.configured, g.fenced = 0, t.GetHolder()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.over || s.closed {
		return nil, s.notLent(id)
	}
	g.keep, g.heard = keepOf(t), true
	s.admitBy(g)
	s.opts.Logger.Info("regions taken up", "cache", id.cache, "grant", id.grant, "holder", t.GetHolder(), "regions", len(g.regions))
	return connect.NewResponse(s.connected(g)), nil
}

// lentTo returns a lent grant that a holder may take up. After a nil error the caller must call
// calls.Done.
func (s *Server) lentTo(id grantID, holder uint64) (*grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.grants[id]
	switch {
	case s.closed:
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("server is closing"))
	case g == nil || !g.lent || g.over:
		return nil, s.notLent(id)
	case holder < g.holder:
		return nil, taken(id)
	}
	g.heard = true
	s.calls.Add(1)
	return g, nil
}

// succeed makes a holder that of the grant, unless it is already. The caller holds changing.
func (s *Server) succeed(g *grant, holder uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case g.over:
		return s.notLent(g.id)
	case holder < g.holder:
		return taken(g.id)
	case holder == g.holder:
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.retract(g)
	g.ticket, g.holder = newTicket(), holder
	return nil
}

// fence ends everything that earlier holders have begun. The caller holds changing.
func (g *grant) fence(ctx context.Context, holder uint64) error {
	g.mu.Lock()
	var conns []*conn
	for c := range g.connections {
		if c.holder < holder {
			conns = append(conns, c)
		}
	}
	var pulls []*pull
	for p := range g.pulls {
		if p.holder < holder {
			pulls = append(pulls, p)
		}
	}
	g.mu.Unlock()
	for _, c := range conns {
		c.cancel()
	}
	for _, p := range pulls {
		p.cancel(errTaken)
	}
	for _, c := range conns {
		if err := awaited(ctx, c.left); err != nil {
			return err
		}
	}
	for _, p := range pulls {
		if err := awaited(ctx, p.over); err != nil {
			return err
		}
	}
	return g.fenceRegions()
}

// awaited waits for something of an earlier holder to end.
func awaited(ctx context.Context, end <-chan struct{}) error {
	select {
	case <-end:
		return nil
	case <-ctx.Done():
		return connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("the former client's connections have not ended: %w", context.Cause(ctx)))
	}
}

// fenceRegions takes the regions from all peers. No connection and no pull uses them. The caller
// holds changing.
func (g *grant) fenceRegions() error {
	// One grant at a time: each may have two copies of a region meanwhile.
	g.server.fencing.Lock()
	defer g.server.fencing.Unlock()
	for i, r := range g.regions {
		moved, err := r.Fence()
		if err != nil {
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%v: fence region %d: %w", g.id, i, err))
		}
		g.mu.Lock()
		g.regions[i] = moved
		delete(g.tokens, r.Token())
		g.tokens[moved.Token()] = struct{}{}
		now := append(memory(nil), *g.memory.Load()...)
		now[i] = moved.Bytes()
		g.memory.Store(&now)
		g.mu.Unlock()
	}
	return nil
}

// taken is the error of a call of a client that another one has succeeded.
func taken(id grantID) error {
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%v: %w", id, errTaken))
}
