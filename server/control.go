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
// which says how much is left; nothing is lent then.
func (s *Server) Connect(ctx context.Context, req *connect.Request[serverv1.ConnectRequest]) (*connect.Response[serverv1.ConnectResponse], error) {
	m := req.Msg
	if err := s.checkConnect(m); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	bytes := int64(m.Regions) * int64(m.RegionSize)
	if err := s.reserve(m.CacheId, bytes); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	l, err := s.newLease(ctx, m)
	if err != nil {
		s.unreserve(m.CacheId, bytes)
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cache %s: %w", m.CacheId, err))
	}
	if !s.publish(l) {
		return nil, connect.NewError(connect.CodeUnavailable, errors.Join(errors.New("server is closing"), l.end()))
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

// reserve takes bytes out of the free memory and keeps the cache's name. After
// a nil error the caller owes a calls.Done.
func (s *Server) reserve(cache string, bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return connect.NewError(connect.CodeUnavailable, errors.New("server is closing"))
	}
	if _, taken := s.leases[cache]; taken {
		return connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("cache %s has regions here already", cache))
	}
	if bytes > s.free {
		err := connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("cache %s wants %v, at most %v of %v are free",
			cache, units.Size(bytes), units.Size(s.free), units.Size(s.opts.Memory)))
		if detail, derr := connect.NewErrorDetail(s.status()); derr == nil {
			err.AddDetail(detail)
		}
		return err
	}
	s.free -= bytes
	s.leases[cache] = nil
	s.calls.Add(1)
	return nil
}

func (s *Server) unreserve(cache string, bytes int64) {
	s.mu.Lock()
	s.free += bytes
	delete(s.leases, cache)
	s.mu.Unlock()
}

// publish makes a lease reachable, unless the server was closed meanwhile.
func (s *Server) publish(l *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.leases[l.cache] = l
	s.tickets[l.ticket] = l
	return true
}

// Disconnect takes back all regions of a cache: its queue pairs are closed, the
// tokens revoked and the memory freed when it returns. A ticket, where one is
// given, has to be the cache's own.
func (s *Server) Disconnect(_ context.Context, req *connect.Request[serverv1.DisconnectRequest]) (*connect.Response[serverv1.DisconnectResponse], error) {
	m := req.Msg
	s.mu.Lock()
	l := s.leases[m.CacheId]
	switch {
	case l == nil:
		s.mu.Unlock()
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no regions are lent to cache %q", m.CacheId))
	case len(m.Ticket) > 0 && subtle.ConstantTimeCompare(m.Ticket, l.ticket[:]) == 0:
		s.mu.Unlock()
		return nil, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("ticket is not that of cache %q", m.CacheId))
	}
	// From here on no other call finds the lease; its name and its memory come
	// free once they really are.
	s.leases[m.CacheId] = nil
	delete(s.tickets, l.ticket)
	s.calls.Add(1)
	defer s.calls.Done()
	s.mu.Unlock()

	err := l.end()
	s.unreserve(l.cache, l.bytes)
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("cache %s: %w", l.cache, err))
	}
	s.opts.Logger.Info("regions taken back", "cache", l.cache)
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
	for _, l := range s.leases {
		if l == nil {
			continue
		}
		l.mu.Lock()
		m.Connections += uint32(l.connections)
		l.mu.Unlock()
		m.Leases = append(m.Leases, &serverv1.Lease{CacheId: l.cache, Regions: uint32(len(l.regions)), Bytes: uint64(l.bytes)})
	}
	sort.Slice(m.Leases, func(i, j int) bool { return m.Leases[i].CacheId < m.Leases[j].CacheId })
	return m
}
