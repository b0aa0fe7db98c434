package server

import (
	"context"
	"fmt"
	"math"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
)

// Release takes back the regions of a grant from number keep on (R71): when it
// returns their tokens are revoked, requests to them in message rings are
// answered with StatusNoRegion, pulls into them have ended and the memory is free.
// The others stay lent. Where there are no more than keep it does nothing.
func (s *Server) Release(_ context.Context, req *connect.Request[serverv1.ReleaseRequest]) (*connect.Response[serverv1.ReleaseResponse], error) {
	m := req.Msg
	err := s.change(grantID{m.CacheId, m.Grant}, m.Ticket, func(t *tenant) error {
		freed, err := t.lease.retain(int(min(m.Keep, math.MaxInt32)))
		s.mu.Lock()
		t.bytes -= freed
		s.free += freed
		s.mu.Unlock()
		if err != nil {
			return connect.NewError(connect.CodeInternal, fmt.Errorf("%v: %w", t.id, err))
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

// Configure changes a grant's configuration: it has that many server threads when
// it returns, over which its connections are spread anew, and connections dialled
// from now on may ask for that batch size and queue depth. Those that are open
// keep their rings, but that they end where no server thread is left. Where cores
// do not suffice the error is ResourceExhausted and nothing has changed.
func (s *Server) Configure(_ context.Context, req *connect.Request[serverv1.ConfigureRequest]) (*connect.Response[serverv1.ConfigureResponse], error) {
	m := req.Msg
	if err := s.checkConfiguration(m.Configuration); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	err := s.change(grantID{m.CacheId, m.Grant}, m.Ticket, func(t *tenant) error {
		return s.configure(t, m)
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&serverv1.ConfigureResponse{}), nil
}

// configure takes the cores of additional threads before they start, and gives
// those of others back when they are gone.
func (s *Server) configure(t *tenant, m *serverv1.ConfigureRequest) error {
	l, count := t.lease, threadsOf(m.Configuration)
	s.mu.Lock()
	before := t.threads
	if count > before {
		if err := s.takeCores(t.id, count, before); err != nil {
			s.mu.Unlock()
			return err
		}
		t.threads = count
	}
	s.mu.Unlock()

	l.mu.Lock()
	l.limits = limitsOf(m.Configuration, l.limits)
	l.mu.Unlock()
	l.setThreads(count)

	if count < before {
		s.mu.Lock()
		s.cores += before - count
		t.threads = count
		s.mu.Unlock()
	}
	s.opts.Logger.Info("lease configured", "cache", m.CacheId, "grant", m.Grant, "threads", count,
		"batch", m.Configuration.GetBatchSize(), "depth", m.Configuration.GetQueueDepth())
	return nil
}

// change calls f with a grant that is lent and stays so until f returns. Changes
// of one grant come one after the other.
func (s *Server) change(id grantID, ticket []byte, f func(*tenant) error) error {
	s.mu.Lock()
	t, err := s.lent(id, ticket)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	l := t.lease
	l.changing.Lock()
	defer l.changing.Unlock()
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	if !open {
		return notLent(id)
	}
	return f(t)
}
