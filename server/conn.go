package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/units"
)

// introduction is how long a peer may take to make its response ring known.
const introduction = 10 * time.Second

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
	c, err := l.admit(hello)
	if err != nil {
		return errors.Join(fmt.Errorf("%v: %w", l.id, err), req.Reject(err.Error()))
	}
	if c.before != nil {
		go func() { // others need not wait for the end of that one
			c.before.cancel()
			<-c.before.left
			if err := s.begin(c, req, hello); err != nil {
				s.opts.Logger.Warn("connection refused", "err", err)
			}
		}()
		return nil
	}
	return s.begin(c, req, hello)
}

// begin opens a connection that was admitted and serves it in a goroutine.
func (s *Server) begin(c *conn, req fabric.Request, hello redywire.Hello) error {
	l := c.lease
	if err := c.open(req, hello); err != nil {
		l.leave(c)
		return errors.Join(fmt.Errorf("%v: %w", l.id, err), req.Reject(err.Error()))
	}
	go func() {
		defer l.leave(c)
		if err := c.run(); err != nil {
			s.opts.Logger.Warn("connection ended", "cache", l.id.cache, "grant", l.id.grant, "err", err)
		}
	}()
	return nil
}

// admit counts a new connection in, if the lease has room for it. The caller owes
// a leave.
func (l *lease) admit(hello redywire.Hello) (*conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &conn{lease: l, number: l.dialled, ctx: l.ctx, left: make(chan struct{})}
	switch {
	case !l.open:
		return nil, errors.New("lease has ended")
	case l.connections == maxConnections:
		return nil, fmt.Errorf("lease has %d connections already", maxConnections)
	case !hello.Ringed():
	case len(*l.threads.Load()) == 0:
		return nil, errors.New("no server threads: one-sided access only")
	case hello.Batch > l.limits.batch || hello.Depth > l.limits.depth:
		return nil, fmt.Errorf("rings of %d slots for batches of %d, the lease is for %d and %d",
			hello.Depth, hello.Batch, l.limits.depth, l.limits.batch)
	default:
		c.ctx = l.ringed
		c.bytes = ringBytes(hello.Batch, hello.Depth)
		if c.bytes > l.limits.rings-l.ringBytes {
			return nil, fmt.Errorf("rings of %v, the lease has %v of %v left for them", units.Size(c.bytes),
				units.Size(l.limits.rings-l.ringBytes), units.Size(l.limits.rings))
		}
		if !l.server.rings.take(c.bytes) {
			return nil, fmt.Errorf("rings of %v, the server has not as much left for them", units.Size(c.bytes))
		}
		l.ringBytes += c.bytes
	}
	l.connections++
	l.dialled++
	l.running.Add(1)
	c.ctx, c.cancel = context.WithCancel(c.ctx)
	if c.owner = hello.Owner; c.owner != 0 {
		c.before = l.owners[c.owner]
		l.owners[c.owner] = c
	}
	return c, nil
}

func (l *lease) leave(c *conn) {
	l.mu.Lock()
	l.connections--
	l.ringBytes -= c.bytes
	if l.owners[c.owner] == c {
		delete(l.owners, c.owner)
	}
	l.mu.Unlock()
	c.cancel()
	close(c.left)
	l.server.rings.give(c.bytes)
	l.running.Done()
}

// conn is one accepted queue pair. Its goroutine (run) owns it, but for the time
// between thread.inbox and returned, when the thread does.
type conn struct {
	lease    *lease
	ctx      context.Context // ends with the lease, with its last thread, or with cancel
	cancel   context.CancelFunc
	number   int
	owner    uint64        // 0: nobody's
	before   *conn         // the owner's earlier one, which ends first; nil: none
	left     chan struct{} // closed when nothing of it goes on
	bytes    int64         // of the rings
	qp       fabric.QueuePair
	ring     *ring     // nil: one-sided
	returned chan bool // the thread hands the connection back: true if it may be awake still
	idle     int       // rounds that the thread found no work
	done     [16]fabric.Completion
}

// open allocates what the connection needs and accepts it.
func (c *conn) open(req fabric.Request, hello redywire.Hello) error {
	var welcome redywire.Welcome
	if hello.Ringed() {
		ring, err := newRing(c.lease.server.provider, hello)
		if err != nil {
			return err
		}
		c.ring, c.returned = ring, make(chan bool)
		welcome.Requests = ring.requests.Token()
	}
	qp, err := req.Accept(welcome.Encode())
	if err != nil {
		return errors.Join(err, c.release())
	}
	c.qp = qp
	return nil
}

// run serves the connection until the peer leaves, the lease ends or nobody is
// left to serve rings. It returns nil for these and the reason for any other end.
func (c *conn) run() error {
	err := c.serve()
	if errors.Is(err, redywire.ErrMalformed) {
		c.lease.server.counts.malformed.Add(1)
	}
	if c.ctx.Err() != nil || errors.Is(err, fabric.ErrDisconnected) || errors.Is(err, fabric.ErrClosed) {
		err = nil
	}
	return errors.Join(err, c.qp.Close(), c.release())
}

func (c *conn) serve() error {
	if c.ring == nil {
		return c.watch()
	}
	if err := c.introduce(); err != nil {
		return err
	}
	for awake := false; ; {
		if !awake {
			if err := c.qp.Wait(c.ctx); err != nil {
				return err
			}
		}
		threads := *c.lease.threads.Load()
		if len(threads) == 0 {
			return errors.New("no server threads any more")
		}
		t := threads[c.number%len(threads)]
		select {
		case t.inbox <- c:
			awake = <-c.returned
			if c.ring.err != nil {
				return c.ring.err
			}
		case <-t.stopped:
			awake = true // others serve it, or the lease has ended
		case <-c.ctx.Done():
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
}

// introduce learns where responses go.
func (c *conn) introduce() error {
	ctx, cancel := context.WithTimeout(c.ctx, introduction)
	defer cancel()
	remote, err := c.qp.Import(ctx, c.ring.responsesToken)
	if err != nil {
		return fmt.Errorf("response ring: %w", err)
	}
	return c.ring.bind(remote)
}

// watch waits for a one-sided peer's end: nothing else is expected from it.
func (c *conn) watch() error {
	for {
		if err := c.qp.Wait(c.ctx); err != nil {
			return err
		}
		if n := c.qp.Poll(c.done[:]); n > 0 {
			return fmt.Errorf("%w: notification on a connection without rings", redywire.ErrMalformed)
		}
		if err := c.qp.Err(); err != nil {
			return err
		}
	}
}

func (c *conn) release() error {
	if c.ring == nil {
		return nil
	}
	return c.ring.close()
}
