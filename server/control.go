package server

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"math"
	"sort"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/units"
)

// Limits of a Connect request.
const (
	maxCacheID = 256     // bytes
	maxRegions = 1 << 16 // of one cache on one server
)

// Connect lends regions to a cache (R33 to R35). Where memory does not suffice
// the error is ResourceExhausted with a [serverv1.StatusResponse] as its detail,
// which says how much is left; where cores do not, it is without. Nothing is lent
// then, nor where the client gives up or the cache is disconnected meanwhile.
func (s *Server) Connect(ctx context.Context, req *connect.Request[serverv1.ConnectRequest]) (*connect.Response[serverv1.ConnectResponse], error) {
	m := req.Msg
	if err := s.checkConnect(m); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	t, err := s.reserve(m)
	if err != nil {
		return nil, err
	}
	defer s.calls.Done()
	l, err := s.newLease(ctx, m)
	if err != nil {
		s.unreserve(t)
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cache %s: %w", m.CacheId, err))
	}
	if err := s.publish(ctx, t, l); err != nil {
		err = errors.Join(err, l.end())
		s.unreserve(t)
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("cache %s: %w", m.CacheId, err))
	}
	s.opts.Logger.Info("regions lent", "cache", m.CacheId, "regions", m.Regions, "size", units.Size(m.RegionSize).String(), "threads", len(l.threads))

	answer := &serverv1.ConnectResponse{
		Transport: s.Transport(), FabricAddr: s.FabricAddr(), Ticket: l.ticket[:],
	}
	for _, r := range l.regions {
		token := r.Token()
		answer.RegionTokens = append(answer.RegionTokens, token[:])
	}
	return connect.NewResponse(answer), nil
}

// checkConnect refuses what no server could grant. The product of regions and
// size fits an int64 afterwards.
func (s *Server) checkConnect(m *serverv1.ConnectRequest) error {
	c := m.GetConfiguration()
	switch {
	case m.CacheId == "" || len(m.CacheId) > maxCacheID:
		return fmt.Errorf("cache ID of %d bytes, want 1 to %d", len(m.CacheId), maxCacheID)
	case m.Regions == 0 || m.Regions > maxRegions:
		return fmt.Errorf("%d regions, want 1 to %d", m.Regions, maxRegions)
	case m.RegionSize == 0 || m.RegionSize > math.MaxInt64/maxRegions:
		return fmt.Errorf("regions of %d bytes", m.RegionSize)
	case int64(c.GetServerThreads()) > int64(s.opts.Cores):
		return fmt.Errorf("%d server threads on %d cores", c.GetServerThreads(), s.opts.Cores)
	case c.GetBatchSize() > redywire.MaxBatch:
		return fmt.Errorf("batches of %d, at most %d", c.GetBatchSize(), redywire.MaxBatch)
	case c.GetQueueDepth() > redywire.MaxDepth:
		return fmt.Errorf("queue depth %d, at most %d", c.GetQueueDepth(), redywire.MaxDepth)
	case c.GetServerThreads() == 0 && c.GetBatchSize() > 1:
		return fmt.Errorf("batches of %d without server threads", c.GetBatchSize()) // R56
	}
	return nil
}

// tenant is a cache's place in Server.leases: its name, memory and threads are
// taken from the beginning of Connect to the end of Disconnect. Guarded by
// Server.mu, but for what does not change.
//
//	set up ──publish──► lent ──Disconnect──► ending ──► gone
//	   └──────────Disconnect, or a failure─────────────►
type tenant struct {
	cache   string
	bytes   int64
	threads int
	lease   *lease        // nil while being set up
	over    bool          // was disconnected: ending, or not to be published
	gone    chan struct{} // closed when everything is free again
}

// threadsOf is how many server threads a lease runs: batches of one are one-sided
// whatever s says (A16).
func threadsOf(m *serverv1.ConnectRequest) int {
	c := m.GetConfiguration()
	if c.GetBatchSize() <= 1 {
		return 0
	}
	return int(c.GetServerThreads())
}

// reserve takes what m asks for out of what is free. After a nil error the
// caller owes a calls.Done.
func (s *Server) reserve(m *serverv1.ConnectRequest) (*tenant, error) {
	t := &tenant{cache: m.CacheId, bytes: int64(m.Regions) * int64(m.RegionSize), threads: threadsOf(m), gone: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("server is closing"))
	}
	if s.leases[t.cache] != nil {
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("cache %s has regions here already", t.cache))
	}
	if t.threads > s.cores {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cache %s wants %d server threads, %d of %d cores are free",
			t.cache, t.threads, s.cores, s.opts.Cores))
	}
	if t.bytes > s.free {
		err := connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cache %s wants %v, at most %v of %v are free",
			t.cache, units.Size(t.bytes), units.Size(s.free), units.Size(s.opts.Memory)))
		if detail, derr := connect.NewErrorDetail(s.status()); derr == nil {
			err.AddDetail(detail)
		}
		return nil, err
	}
	s.free -= t.bytes
	s.cores -= t.threads
	s.leases[t.cache] = t
	s.calls.Add(1)
	return t, nil
}

func (s *Server) unreserve(t *tenant) {
	s.mu.Lock()
	s.free += t.bytes
	s.cores += t.threads
	delete(s.leases, t.cache)
	s.mu.Unlock()
	close(t.gone)
}

// publish makes a lease reachable, unless nobody wants it any more: a client that
// gave up may have had its cache deallocated while this server was setting it up.
func (s *Server) publish(ctx context.Context, t *tenant, l *lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("server is closing")
	case t.over:
		return errors.New("disconnected while it connected")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	t.lease = l
	s.tickets[l.ticket] = l
	return nil
}

// Disconnect takes back all regions of a cache, be they still being set up: its
// queue pairs are closed, the tokens revoked and the memory freed when it
// returns. A ticket, where one is given, has to be the cache's own.
func (s *Server) Disconnect(ctx context.Context, req *connect.Request[serverv1.DisconnectRequest]) (*connect.Response[serverv1.DisconnectResponse], error) {
	m := req.Msg
	s.mu.Lock()
	t := s.leases[m.CacheId]
	switch {
	case t == nil || t.lease == nil && len(m.Ticket) > 0: // nobody has its ticket yet
		s.mu.Unlock()
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no regions are lent to cache %q", m.CacheId))
	case len(m.Ticket) > 0 && subtle.ConstantTimeCompare(m.Ticket, t.lease.ticket[:]) == 0:
		s.mu.Unlock()
		return nil, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("ticket is not that of cache %q", m.CacheId))
	}
	ours := t.lease != nil && !t.over // to end; otherwise another call does that
	t.over = true
	if !ours {
		s.mu.Unlock()
		select {
		case <-t.gone:
			return connect.NewResponse(&serverv1.DisconnectResponse{}), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	delete(s.tickets, t.lease.ticket)
	s.calls.Add(1)
	defer s.calls.Done()
	s.mu.Unlock()

	err := t.lease.end()
	s.unreserve(t)
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("cache %s: %w", t.cache, err))
	}
	s.opts.Logger.Info("regions taken back", "cache", t.cache)
	return connect.NewResponse(&serverv1.DisconnectResponse{}), nil
}

// Status says what is lent to whom.
func (s *Server) Status(context.Context, *connect.Request[serverv1.StatusRequest]) (*connect.Response[serverv1.StatusResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return connect.NewResponse(s.status()), nil
}

// status is called under mu.
func (s *Server) status() *serverv1.StatusResponse {
	m := &serverv1.StatusResponse{Memory: uint64(s.opts.Memory), FreeMemory: uint64(s.free), Cores: uint32(s.opts.Cores)}
	for _, t := range s.leases {
		if t.lease == nil || t.over {
			continue
		}
		l := t.lease
		l.mu.Lock()
		m.Connections += uint32(l.connections)
		l.mu.Unlock()
		m.Leases = append(m.Leases, &serverv1.Lease{CacheId: l.cache, Regions: uint32(len(l.regions)), Bytes: uint64(t.bytes)})
	}
	sort.Slice(m.Leases, func(i, j int) bool { return m.Leases[i].CacheId < m.Leases[j].CacheId })
	return m
}
