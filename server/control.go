package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/units"
)

// Limits of a Connect request.
const (
	maxName    = 256                 // bytes of a cache's ID, and of a grant's name
	maxRegions = 1 << 16             // of one grant
	maxKeep    = 30 * 24 * time.Hour // for which a grant with a silent client is kept
)

// Connect lends regions to a cache under a grant (R33 to R35). If memory does not suffice,
// the error is ResourceExhausted with a [serverv1.StatusResponse] as its detail, which says
// how much is left; if cores do not suffice, it has no detail. A grant that was taken back
// is NotFound, terms that have ended are FailedPrecondition. Nothing is lent on an error, nor if the client gives up or the grant is
// disconnected meanwhile.
func (s *Server) Connect(ctx context.Context, req *connect.Request[serverv1.ConnectRequest]) (*connect.Response[serverv1.ConnectResponse], error) {
	m, terms := req.Msg, req.Msg.GetTerms()
	if err := s.checkConnect(m); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if m.TakeUp {
		return s.takeUp(ctx, m)
	}
	if err := checkEnd(terms); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	g, err := s.reserve(m)
	if err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if err := g.setUp(ctx, m); err != nil {
		s.unreserve(g)
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%v: %w", g.id, err))
	}
	answer := s.connected(g)
	if err := s.publish(ctx, g); err != nil {
		err = errors.Join(err, g.end())
		s.unreserve(g)
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("%v: %w", g.id, err))
	}
	s.opts.Logger.Info("regions lent", "cache", terms.CacheId, "grant", terms.Grant,
		"regions", terms.Regions, "size", units.Size(terms.RegionSize).String(), "threads", threadsOf(m.Configuration))
	return connect.NewResponse(answer), nil
}

// connected returns the answer for a grant that no other call changes.
func (s *Server) connected(g *grant) *serverv1.ConnectResponse {
	ticket := g.ticket
	answer := &serverv1.ConnectResponse{Transport: s.Transport(), FabricAddr: s.FabricAddr(), Ticket: ticket[:]}
	for _, r := range g.regions {
		token := r.Token()
		answer.RegionTokens = append(answer.RegionTokens, token[:])
	}
	return answer
}

// checkConnect refuses invalid requests, and those that exceed their terms. Afterwards the
// product of regions and size fits an int64.
func (s *Server) checkConnect(m *serverv1.ConnectRequest) error {
	t := m.GetTerms()
	switch {
	case t.GetCacheId() == "" || len(t.CacheId) > maxName:
		return fmt.Errorf("cache ID of %d bytes, want 1 to %d", len(t.GetCacheId()), maxName)
	case len(t.Grant) > maxName:
		return fmt.Errorf("grant name of %d bytes, want at most %d", len(t.Grant), maxName)
	case s.opts.VM != "" && t.VmId != s.opts.VM:
		return fmt.Errorf("grant of VM %.40q, this is VM %q", t.VmId, s.opts.VM)
	case t.Regions == 0 || t.Regions > maxRegions:
		return fmt.Errorf("%d regions, want 1 to %d", t.Regions, maxRegions)
	case t.RegionSize == 0 || t.RegionSize > math.MaxInt64/maxRegions:
		return fmt.Errorf("region size %d, want 1 to %d bytes", t.RegionSize, int64(math.MaxInt64/maxRegions))
	case t.KeepMs < 0 || t.KeepMs > maxKeep.Milliseconds():
		return fmt.Errorf("grant is kept for %d ms, want 0 to %d", t.KeepMs, maxKeep.Milliseconds())
	}
	if err := withinTerms(m.Configuration, t.Cores); err != nil {
		return err
	}
	return s.checkConfiguration(m.Configuration)
}

// withinTerms refuses a configuration with more server threads than a grant may have.
func withinTerms(c *managerv1.Configuration, most uint32) error {
	if n := threadsOf(c); int64(n) > int64(most) {
		return fmt.Errorf("%d server threads, the grant's terms allow %d", n, most)
	}
	return nil
}

// checkConfiguration refuses a configuration that no grant of this server can have.
func (s *Server) checkConfiguration(c *managerv1.Configuration) error {
	switch {
	case int64(c.GetServerThreads()) > int64(s.opts.Cores):
		return fmt.Errorf("%d server threads, the server has %d cores", c.GetServerThreads(), s.opts.Cores)
	case c.GetBatchSize() > redywire.MaxBatch:
		return fmt.Errorf("batch size %d, want at most %d", c.GetBatchSize(), redywire.MaxBatch)
	case c.GetQueueDepth() > redywire.MaxDepth:
		return fmt.Errorf("queue depth %d, want at most %d", c.GetQueueDepth(), redywire.MaxDepth)
	case c.GetServerThreads() == 0 && c.GetBatchSize() > 1:
		return fmt.Errorf("batch size %d needs server threads", c.GetBatchSize()) // R56
	}
	return nil
}

// threadsOf returns the number of server threads that a grant runs: none for batches of one,
// which are one-sided (A16).
func threadsOf(c *managerv1.Configuration) int {
	if c.GetBatchSize() <= 1 {
		return 0
	}
	return int(c.GetServerThreads())
}

// Disconnect takes back all regions of a grant, or of all grants of a cache if neither grant
// nor ticket is given, also while they are set up. When it returns, queue pairs are closed,
// tokens are revoked and the memory is free. A ticket, if given, must be the grant's.
func (s *Server) Disconnect(ctx context.Context, req *connect.Request[serverv1.DisconnectRequest]) (*connect.Response[serverv1.DisconnectResponse], error) {
	ends, err := s.disconnected(req.Msg)
	if err != nil {
		return nil, err
	}
	for _, e := range ends {
		if e.ours {
			err = errors.Join(err, s.finish(e.grant))
		}
	}
	for _, e := range ends { // those that other calls end
		select {
		case <-e.grant.gone:
		case <-ctx.Done():
			err = errors.Join(err, context.Cause(ctx))
		}
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, err // with the code of the context's error
	case err != nil:
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return connect.NewResponse(&serverv1.DisconnectResponse{}), nil
}

// ending is a grant that was disconnected. If ours is set, this call has to end it and to
// call calls.Done.
type ending struct {
	grant *grant
	ours  bool
}

// disconnected marks the grants that m names as over.
func (s *Server) disconnected(m *serverv1.DisconnectRequest) (ends []ending, err error) {
	id := grantID{m.CacheId, m.Grant}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.grants[id]; g != nil && len(m.Ticket) == 0 && m.Token != "" && m.GetTerms().GetHolder() < g.holder {
		return nil, taken(id)
	}
	if len(m.Ticket) == 0 {
		s.spent.add(id) // lent, or not connected yet
	}
	var named []*grant
	if m.Grant == "" && len(m.Ticket) == 0 {
		for _, g := range s.grants {
			if g.id.cache == m.CacheId {
				named = append(named, g)
			}
		}
	} else if g := s.grants[id]; g != nil && (g.lent || len(m.Ticket) == 0) { // no ticket is known before
		if len(m.Ticket) > 0 {
			if err := g.admits(m.Ticket); err != nil {
				return nil, err
			}
		}
		named = append(named, g)
	}
	if len(named) == 0 {
		return nil, s.notLent(id)
	}
	for _, g := range named {
		ends = append(ends, s.markOver(g))
	}
	return ends, nil
}

// markOver marks a grant as over. Called under mu.
func (s *Server) markOver(g *grant) ending {
	e := ending{g, g.lent && !g.over}
	g.over = true
	s.spent.add(g.id)
	if e.ours {
		s.retract(g)
		s.calls.Add(1)
	}
	return e
}

// finish ends a grant that is over.
func (s *Server) finish(g *grant) error {
	defer s.calls.Done()
	err := g.end()
	s.unreserve(g)
	if err != nil {
		return fmt.Errorf("%v: %w", g.id, err)
	}
	s.opts.Logger.Info("regions taken back", "cache", g.id.cache, "grant", g.id.grant)
	return nil
}

// Status reports the server's memory, cores and grants: the one that the request's ticket
// is for, or all.
func (s *Server) Status(_ context.Context, req *connect.Request[serverv1.StatusRequest]) (*connect.Response[serverv1.StatusResponse], error) {
	if m := req.Msg; len(m.GetTicket()) > 0 {
		g, err := s.find(grantID{m.GetCacheId(), m.GetGrant()}, m.GetTicket())
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return connect.NewResponse(s.statusOf(g)), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return connect.NewResponse(s.status()), nil
}

// status is called under mu.
func (s *Server) status() *serverv1.StatusResponse {
	return s.statusOf(slices.Collect(maps.Values(s.grants))...)
}

// statusOf is status with some of the grants. Called under mu.
func (s *Server) statusOf(grants ...*grant) *serverv1.StatusResponse {
	m := &serverv1.StatusResponse{Memory: uint64(s.opts.Memory), FreeMemory: uint64(s.free), Cores: uint32(s.opts.Cores)}
	for _, g := range grants {
		if !g.lent || g.over {
			continue
		}
		silent := g.silent
		if g.heard || g.inUse() {
			silent = 0
		}
		g.mu.Lock()
		m.Connections += uint32(len(g.connections))
		m.Grants = append(m.Grants, &serverv1.Grant{
			CacheId: g.id.cache, Id: g.id.grant, Regions: uint32(len(g.regions)), Bytes: uint64(g.bytes), SilentMs: silent.Milliseconds(), Holder: g.holder,
		})
		g.mu.Unlock()
	}
	slices.SortFunc(m.Grants, func(a, b *serverv1.Grant) int {
		return cmp.Or(cmp.Compare(a.CacheId, b.CacheId), cmp.Compare(a.Id, b.Id))
	})
	return m
}

// Release takes back the regions of a grant from number keep on (R71). When it returns,
// their tokens are revoked, requests to them in message rings are answered with
// StatusNoRegion, pulls into them have ended and the memory is free. The others stay lent.
func (s *Server) Release(ctx context.Context, req *connect.Request[serverv1.ReleaseRequest]) (*connect.Response[serverv1.ReleaseResponse], error) {
	m := req.Msg
	err := s.change(ctx, grantID{m.CacheId, m.Grant}, m.Ticket, func(g *grant) error {
		freed, err := g.retain(int(min(m.Keep, math.MaxInt32)))
		s.mu.Lock()
		g.bytes -= freed
		s.free += freed
		s.mu.Unlock()
		if err != nil {
			return connect.NewError(connect.CodeInternal, fmt.Errorf("%v: %w", g.id, err))
		}
		if freed > 0 {
			s.opts.Logger.Info("regions released", "cache", m.CacheId, "grant", m.Grant, "left", m.Keep)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&serverv1.ReleaseResponse{}), nil
}

// Configure changes a grant's configuration. When it returns, the grant has as many server
// threads as asked for, with its connections spread over them, and new connections may use
// the new batch size and queue depth. Open connections keep their rings; they end if no
// server thread is left. If cores do not suffice, the error is ResourceExhausted and nothing
// has changed. A repetition of the last change has no effect; an earlier change is
// FailedPrecondition.
func (s *Server) Configure(ctx context.Context, req *connect.Request[serverv1.ConfigureRequest]) (*connect.Response[serverv1.ConfigureResponse], error) {
	m := req.Msg
	if m.Change == 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("change 0: want the number of the client's Configure call for this grant, from 1 on"))
	}
	if err := s.checkConfiguration(m.Configuration); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	err := s.change(ctx, grantID{m.CacheId, m.Grant}, m.Ticket, func(g *grant) error {
		switch {
		case m.Change < g.configured:
			return connect.NewError(connect.CodeFailedPrecondition,
				fmt.Errorf("%v: change %d is outdated: the last one is %d", g.id, m.Change, g.configured))
		case m.Change == g.configured:
			return nil
		}
		if err := s.configure(g, m); err != nil {
			return err
		}
		g.configured = m.Change
		return nil
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&serverv1.ConfigureResponse{}), nil
}

// configure reserves the cores of additional threads before they start, and returns the
// cores of threads that have ended.
func (s *Server) configure(g *grant, m *serverv1.ConfigureRequest) error {
	count := threadsOf(m.Configuration)
	s.mu.Lock()
	most := g.threadsMost
	if checkEnd(m.GetTerms()) == nil {
		most = max(most, m.GetTerms().GetCores())
	}
	if err := withinTerms(m.Configuration, most); err != nil {
		s.mu.Unlock()
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%v: %w", g.id, err))
	}
	before := g.cores
	if count > before {
		if err := s.takeCores(g.id, count, before); err != nil {
			s.mu.Unlock()
			return err
		}
		g.cores = count
	}
	g.threadsMost = most
	s.mu.Unlock()

	g.mu.Lock()
	g.limits = limitsOf(m.Configuration, g.limits)
	g.mu.Unlock()
	g.setThreads(count)

	if count < before {
		s.mu.Lock()
		s.cores += before - count
		g.cores = count
		s.mu.Unlock()
	}
	s.opts.Logger.Info("grant configured", "cache", m.CacheId, "grant", m.Grant, "threads", count,
		"batch", m.Configuration.GetBatchSize(), "depth", m.Configuration.GetQueueDepth())
	return nil
}

// change calls f with a grant that stays lent until f returns. Changes of one grant are
// serialized; a caller that gives up before its turn changes nothing.
func (s *Server) change(ctx context.Context, id grantID, ticket []byte, f func(*grant) error) error {
	g, err := s.find(id, ticket)
	if err != nil {
		return err
	}
	g.changing.Lock()
	defer g.changing.Unlock()
	if err := ctx.Err(); err != nil {
		return connect.NewError(connect.CodeCanceled, fmt.Errorf("%v: the caller gave up: %w", id, err))
	}
	g.mu.Lock()
	open, succeeded := g.open, redywire.Ticket(ticket) != g.ticket
	g.mu.Unlock()
	switch {
	case !open:
		return ended(id)
	case succeeded: // by another holder, while the caller waited for its turn
		return taken(id)
	}
	return f(g)
}
