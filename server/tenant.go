package server

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/units"
)

// grantID names what one server lends to one cache at one time. A cache may have
// several grants on a server; that without a name is one of them.
type grantID struct{ cache, grant string }

func (id grantID) String() string {
	if id.grant == "" {
		return "cache " + id.cache
	}
	return "cache " + id.cache + ", grant " + id.grant
}

// tenant is a grant's place in Server.leases: its name, memory and threads are
// taken from the beginning of Connect to the end of Disconnect. Guarded by
// Server.mu, but for what does not change.
//
//	set up ──publish──► lent ──Disconnect──► ending ──► gone
//	   └──────────Disconnect, or a failure─────────────►
type tenant struct {
	id      grantID
	bytes   int64         // of Server.free; Release makes it less
	threads int           // of Server.cores; Configure changes it
	lease   *lease        // nil while being set up
	over    bool          // was disconnected: ending, or not to be published
	gone    chan struct{} // closed when everything is free again
}

// reserve takes what m asks for out of what is free. After a nil error the
// caller owes a calls.Done.
func (s *Server) reserve(m *serverv1.ConnectRequest) (*tenant, error) {
	t := &tenant{
		id:    grantID{m.CacheId, m.Grant},
		bytes: int64(m.Regions) * int64(m.RegionSize), threads: threadsOf(m.Configuration),
		gone: make(chan struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("server is closing"))
	}
	if s.spent.has(t.id) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("%v was taken back", t.id))
	}
	if s.leases[t.id] != nil {
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("%v has regions here already", t.id))
	}
	if err := s.takeCores(t.id, t.threads, 0); err != nil {
		return nil, err
	}
	if t.bytes > s.free {
		s.cores += t.threads
		return nil, s.short(t.id, m)
	}
	s.free -= t.bytes
	s.leases[t.id] = t
	s.calls.Add(1)
	return t, nil
}

// takeCores takes the cores for as many threads beyond those that a grant has.
// Under mu.
func (s *Server) takeCores(id grantID, threads, has int) error {
	if threads-has > s.cores {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%v wants %d server threads, %d of %d cores are free",
			id, threads, s.cores+has, s.opts.Cores))
	}
	s.cores -= threads - has
	return nil
}

// short is the refusal of what does not fit in memory; its detail says how much
// is left. Under mu.
func (s *Server) short(id grantID, m *serverv1.ConnectRequest) error {
	want := fmt.Errorf("%v wants %v, at most %v of %v are free",
		id, units.Size(m.Regions)*units.Size(m.RegionSize), units.Size(s.free), units.Size(s.opts.Memory))
	if m.RegionSize > uint64(s.opts.Memory) {
		want = fmt.Errorf("%v wants regions of %v, all memory is %v", id, units.Size(m.RegionSize), units.Size(s.opts.Memory))
	}
	err := connect.NewError(connect.CodeResourceExhausted, want)
	if detail, derr := connect.NewErrorDetail(s.status()); derr == nil {
		err.AddDetail(detail)
	}
	return err
}

func (s *Server) unreserve(t *tenant) {
	s.mu.Lock()
	s.free += t.bytes
	s.cores += t.threads
	delete(s.leases, t.id)
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

// lent returns the grant of that name, if it is lent and the ticket is its own. Under mu.
func (s *Server) lent(id grantID, ticket []byte) (*tenant, error) {
	t := s.leases[id]
	if t == nil || t.lease == nil || t.over {
		return nil, notLent(id)
	}
	return t, t.admits(ticket)
}

// admits says whether a caller with this ticket may change a grant that is lent,
// or was.
func (t *tenant) admits(ticket []byte) error {
	if subtle.ConstantTimeCompare(ticket, t.lease.ticket[:]) == 0 {
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("ticket is not that of %v", t.id))
	}
	return nil
}

func notLent(id grantID) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("no regions are lent to %v", id))
}
