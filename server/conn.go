package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
	"github.com/redykv/redykv/internal/units"
)

// importTimeout bounds the import of a peer's response ring.
const importTimeout = 10 * time.Second

// acceptLoop accepts queue pairs until the listener is closed.
func (s *Server) acceptLoop() {
	for {
		req, err := s.listener.Accept(s.ctx)
		if err != nil {
			if s.ctx.Err() == nil {
				s.opts.Logger.Error("fabric listener failed; no new connections", "err", err)
			}
			return
		}
		s.accept(req)
	}
}

// accept makes a connection of a request that carries a grant's ticket, and refuses others.
func (s *Server) accept(req fabric.Request) {
	hello, err := redywire.DecodeHello(req.Private())
	if err != nil {
		s.refuse(req, "malformed hello", err)
		return
	}
	s.mu.Lock()
	g := s.tickets[hello.Ticket]
	if g != nil && hello.Ticket == g.ticket {
		g.heard = true // even if it has no room
	}
	s.mu.Unlock()
	if g == nil {
		s.refuse(req, "unknown ticket", errors.New("unknown ticket"))
		return
	}
	c, before, err := g.admit(hello)
	waits := len(before) > 0
	if waits {
		select {
		case s.waiting <- struct{}{}:
		case <-s.ctx.Done():
			s.refuse(req, "the server is closing", context.Cause(s.ctx))
			return
		}
	}
	// Other requests do not wait for earlier connections to end, nor for a slow peer.
	s.accepting.Go(func() {
		for len(before) > 0 {
			for _, b := range before {
				b.cancel()
				<-b.left
			}
			c, before, err = g.admit(hello)
		}
		if waits {
			<-s.waiting
		}
		s.begin(g, c, err, req, hello)
	})
}

// giveUp ends the opening of a connection, which the peer may try again.
func giveUp(req fabric.Request) {
	_ = req.Reject(fmt.Sprintf("%v: the connection has ended", redywire.ErrNoRoom)) // the peer may be gone
}

// refuse counts a connection that is refused, tells the peer the reason, and logs err.
func (s *Server) refuse(req fabric.Request, reason string, err error) {
	s.counts.rejected.Add(1) // before the peer knows
	s.opts.Logger.Warn("connection refused", "err", errors.Join(err, req.Reject(reason)))
}

// begin opens an admitted connection and serves it in a goroutine. It refuses a connection
// that was not admitted, because of err, or that cannot be opened.
func (s *Server) begin(g *grant, c *conn, err error, req fabric.Request, hello redywire.Hello) {
	if err == nil {
		if err = c.open(req, hello); err != nil {
			ended := c.ctx.Err() != nil
			g.leave(c)
			if ended {
				giveUp(req)
				return
			}
		}
	}
	if err != nil {
		s.refuse(req, err.Error(), fmt.Errorf("%v: %w", g.id, err))
		return
	}
	go func() {
		defer g.leave(c)
		if err := c.run(); err != nil {
			s.opts.Logger.Warn("connection ended", "cache", g.id.cache, "grant", g.id.grant, "err", err)
		}
	}()
}

// admit adds a connection if the grant has room for it; the caller must call leave. If its
// owner has connections of earlier generations, admit returns these instead: they must end
// first.
func (g *grant) admit(hello redywire.Hello) (c *conn, before []*conn, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rights := fabric.ReadWrite
	switch {
	case hello.Ticket == g.ticket:
	case hello.Ticket != g.ticket.Reading():
		return nil, nil, errTaken // since accept has found the grant
	case hello.Ringed() || hello.Owner != 0:
		return nil, nil, errors.New("a ticket for reading admits one-sided reads, without an owner")
	default:
		rights = fabric.ReadOnly
	}
	for _, other := range g.owners[hello.Owner] {
		switch {
		case other.generation > hello.Generation:
			return nil, nil, fmt.Errorf("connection of generation %d: its session has a newer one, of generation %d", hello.Generation, other.generation)
		case other.generation < hello.Generation:
			before = append(before, other)
		}
	}
	if len(before) > 0 {
		return nil, before, nil
	}
	c = &conn{
		grant: g, holder: g.holder, rights: rights, number: g.dialled, owner: hello.Owner, generation: hello.Generation,
		ctx: g.ctx, left: make(chan struct{}),
	}
	if err := g.takeRings(c, hello); err != nil {
		return nil, nil, err
	}
	g.connections[c] = struct{}{}
	g.dialled++
	g.running.Add(1)
	ctx, cancel := context.WithCancel(c.ctx)
	c.ctx, c.cancel = ctx, func() {
		c.ending.Store(true)
		cancel()
	}
	if c.owner != 0 {
		g.owners[c.owner] = append(g.owners[c.owner], c)
	}
	return c, nil, nil
}

// takeRings refuses a connection for which the grant has no room, or that its configuration
// does not allow at the moment, and otherwise reserves the memory of its rings. Called under mu.
func (g *grant) takeRings(c *conn, hello redywire.Hello) error {
	switch {
	case !g.open:
		return errors.New("the grant has ended")
	case len(g.connections) == maxConnections:
		return fmt.Errorf("%w: the grant has %d connections already", redywire.ErrNoRoom, maxConnections)
	case !hello.Ringed():
		return nil
	case len(*g.threads.Load()) == 0:
		return fmt.Errorf("%w: the grant has no server threads: one-sided access only", redywire.ErrNoRoom)
	case hello.Batch > g.limits.batch || hello.Depth > g.limits.depth:
		return fmt.Errorf("%w: rings of %d slots for batches of %d: the grant allows %d slots and batches of %d",
			redywire.ErrNoRoom, hello.Depth, hello.Batch, g.limits.depth, g.limits.batch)
	}
	bytes := ringBytes(hello.Batch, hello.Depth)
	if bytes > g.limits.rings-g.ringBytes {
		return fmt.Errorf("%w: rings of %v: the grant has %v of %v left for rings", redywire.ErrNoRoom,
			units.Size(bytes), units.Size(g.limits.rings-g.ringBytes), units.Size(g.limits.rings))
	}
	if !g.server.rings.take(&g.rings, bytes) {
		return fmt.Errorf("%w: rings of %v: the server has less memory left for the grant's rings", redywire.ErrNoRoom, units.Size(bytes))
	}
	g.ringBytes += bytes
	c.bytes, c.ctx = bytes, g.ringed
	return nil
}

func (g *grant) leave(c *conn) {
	g.mu.Lock()
	delete(g.connections, c)
	g.ringBytes -= c.bytes
	if c.owner != 0 {
		others := slices.DeleteFunc(g.owners[c.owner], func(o *conn) bool { return o == c })
		if g.owners[c.owner] = others; len(others) == 0 {
			delete(g.owners, c.owner)
		}
	}
	g.mu.Unlock()
	c.cancel()
	g.server.rings.give(&g.rings, c.bytes)
	close(c.left)
	g.running.Done()
}

// conn is one accepted queue pair. Its goroutine (run) owns it, except from a send on
// thread.inbox to the receive from returned: then the thread owns it.
type conn struct {
	grant    *grant
	holder   uint64 // whose ticket it has shown
	rights   fabric.Rights
	ctx      context.Context // ends with the grant, with its last thread, or by cancel
	cancel   context.CancelFunc
	ending   atomic.Bool // set by cancel: the thread returns the connection, also with work
	number   int
	owner    uint64        // client session; 0: none
	left     chan struct{} // closed when the connection has left its grant
	bytes    int64         // size of the rings
	qp       fabric.QueuePair
	ring     *ring     // nil: one-sided
	returned chan bool // the thread returns the connection: true if it may still have work
	idle     int       // rounds in which the thread found no work
	done     [16]fabric.Completion

	generation uint32 // of the owner's connections
}

// open allocates what the connection needs and accepts it.
func (c *conn) open(req fabric.Request, hello redywire.Hello) error {
	var welcome redywire.Welcome
	if hello.Ringed() {
		ring, err := newRing(c.grant.server.provider, hello)
		if err != nil {
			return fmt.Errorf("%w: %w", redywire.ErrNoRoom, err)
		}
		c.ring, c.returned = ring, make(chan bool)
		welcome.Requests = ring.requests.Token()
	}
	req.Limit(c.lends)
	stop := context.AfterFunc(c.ctx, func() { giveUp(req) })
	qp, err := req.Accept(welcome.Encode(), c.rights)
	stop()
	if err != nil {
		return errors.Join(err, c.release())
	}
	c.qp = qp
	return nil
}

// lends reports whether the peer may import a region: one of the grant whose ticket it has shown, to which
// the connection's rights apply, or its ring for requests. The transport calls it.
func (c *conn) lends(token fabric.Token) bool {
	if c.ring != nil && token == c.ring.requests.Token() {
		return true
	}
	c.grant.mu.Lock()
	defer c.grant.mu.Unlock()
	_, ok := c.grant.tokens[token]
	return ok
}

// run serves the connection until the peer disconnects, the grant ends or no thread is left
// to serve its rings. It returns nil for these ends, and the reason for any other.
func (c *conn) run() error {
	err := c.serve()
	if errors.Is(err, redywire.ErrMalformed) {
		c.grant.server.counts.malformed.Add(1)
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
	if err := c.importResponses(); err != nil {
		return err
	}
	for awake := false; ; {
		if !awake {
			if err := c.qp.Wait(c.ctx); err != nil {
				return err
			}
		}
		threads := *c.grant.threads.Load()
		if len(threads) == 0 {
			return errors.New("the grant no longer has server threads")
		}
		t := threads[c.number%len(threads)]
		select {
		case t.inbox <- c:
			awake = <-c.returned
			if c.ring.err != nil {
				return c.ring.err
			}
		case <-t.stopped:
			awake = true // another thread serves it, or the grant has ended
		case <-c.ctx.Done():
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
}

// importResponses imports the peer's response ring.
func (c *conn) importResponses() error {
	ctx, cancel := context.WithTimeout(c.ctx, importTimeout)
	defer cancel()
	remote, err := c.qp.Import(ctx, c.ring.responsesToken)
	if err != nil {
		return fmt.Errorf("response ring: %w", err)
	}
	return c.ring.bind(remote)
}

// watch waits until a one-sided peer disconnects. It must send nothing.
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
