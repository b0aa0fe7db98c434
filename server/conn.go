package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// acceptLoop takes in the queue pairs that clients dial, until the listener is
// closed.
func (s *Server) acceptLoop() {
	defer s.accepting.Done()
	for {
		req, err := s.listener.Accept(s.ctx)
		if err != nil {
			if s.ctx.Err() == nil {
				s.opts.Logger.Error("fabric listener failed; no new connections", "err", err)
			}
			return
		}
		if err := s.accept(req); err != nil {
			s.counts.rejected.Add(1)
			s.opts.Logger.Warn("connection refused", "err", err)
		}
	}
}

// accept makes a connection of a request that carries a lease's ticket, and
// refuses any other.
func (s *Server) accept(req fabric.Request) error {
	hello, err := redywire.DecodeHello(req.Private())
	if err != nil {
		return errors.Join(err, req.Reject("malformed hello"))
	}
	s.mu.Lock()
	l := s.tickets[hello.Ticket]
	s.mu.Unlock()
	if l == nil {
		return errors.Join(errors.New("unknown ticket"), req.Reject("unknown ticket"))
	}
	t, err := l.admit()
	if err != nil {
		return errors.Join(fmt.Errorf("cache %s: %w", l.cache, err), req.Reject(err.Error()))
	}
	c, err := s.newConn(req, hello, l, t)
	if err != nil {
		l.leave()
		return errors.Join(fmt.Errorf("cache %s: %w", l.cache, err), req.Reject(err.Error()))
	}
	go func() {
		defer l.leave()
		if err := c.run(l.ctx); err != nil {
			s.opts.Logger.Warn("connection ended", "cache", l.cache, "err", err)
		}
	}()
	return nil
}

// newConn allocates what the connection needs and accepts it.
func (s *Server) newConn(req fabric.Request, hello redywire.Hello, l *lease, t *thread) (*conn, error) {
	c := &conn{lease: l}
	var welcome redywire.Welcome
	if hello.Ringed() {
		if t == nil {
			return nil, errors.New("no server threads: one-sided access only")
		}
		if hello.Batch > l.batch || hello.Depth > l.depth {
			return nil, fmt.Errorf("rings of %d slots for batches of %d, the lease is for %d and %d",
				hello.Depth, hello.Batch, l.depth, l.batch)
		}
		ring, err := s.newRing(hello)
		if err != nil {
			return nil, err
		}
		c.ring, c.thread, c.returned = ring, t, make(chan struct{})
		welcome.Requests = ring.requests.Token()
	}
	qp, err := req.Accept(welcome.Encode())
	if err != nil {
		return nil, errors.Join(err, c.release())
	}
	c.qp = qp
	return c, nil
}

// conn is one accepted queue pair. Its goroutine (run) owns it, but for the time
// between thread.inbox and returned, when the thread does.
type conn struct {
	lease    *lease
	qp       fabric.QueuePair
	ring     *ring // nil: one-sided
	thread   *thread
	returned chan struct{} // the thread hands the connection back
	idle     int           // rounds that the thread found no work
	done     [16]fabric.Completion
}

// run serves the connection until the peer leaves or the lease ends. It returns
// nil for these and the reason for any other end.
func (c *conn) run(ctx context.Context) error {
	err := c.serve(ctx)
	if errors.Is(err, redywire.ErrMalformed) {
		c.lease.counts.malformed.Add(1)
	}
	if ctx.Err() != nil || errors.Is(err, fabric.ErrDisconnected) || errors.Is(err, fabric.ErrClosed) {
		err = nil
	}
	return errors.Join(err, c.qp.Close(), c.release())
}

func (c *conn) serve(ctx context.Context) error {
	if c.ring != nil {
		remote, err := c.qp.Import(ctx, c.ring.responsesToken)
		if err != nil {
			return fmt.Errorf("response ring: %w", err)
		}
		if err := c.ring.bind(remote); err != nil {
			return err
		}
	}
	for {
		if err := c.qp.Wait(ctx); err != nil {
			return err
		}
		if c.ring == nil {
			// Nothing is expected from a one-sided peer but its end.
			if n := c.qp.Poll(c.done[:]); n > 0 {
				return fmt.Errorf("%w: notification on a connection without rings", redywire.ErrMalformed)
			}
			if err := c.qp.Err(); err != nil {
				return err
			}
			continue
		}
		select {
		case c.thread.inbox <- c:
			<-c.returned
			if c.ring.err != nil {
				return c.ring.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *conn) release() error {
	if c.ring == nil {
		return nil
	}
	return c.ring.close()
}
