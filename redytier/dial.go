package redytier

import (
	"context"
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// NewSession returns a session for up to depth operations under way, connected
// to every VM of the cache. On VMs that are lost its requests fail.
func (c *Cache) NewSession(depth int) (*Session, error) {
	return c.newSession(depth, 0)
}

// newSession is NewSession for requests that run on at address 0 when they come
// to wrap, unless that is 0.
func (c *Cache) newSession(depth int, wrap int64) (*Session, error) {
	if depth < 1 || depth > MaxDepth {
		return nil, fmt.Errorf("redytier: session depth %d, want 1 to %d", depth, MaxDepth)
	}
	s := &Session{
		cache: c, table: c.table, wrap: wrap, epoch: c.epoch.Load(),
		ops: make([]op, depth), free: make([]uint32, depth),
		ready: newFIFO[uint32](depth),
	}
	for i := range s.free {
		s.free[i] = uint32(depth - 1 - i)
	}
	// Deleting and registering exclude each other, so that the provider is not
	// closed under a session that is being set up.
	c.mu.Lock()
	if c.deleted.Load() {
		c.mu.Unlock()
		return nil, ErrDeleted
	}
	c.sessions[s] = struct{}{}
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	if err := s.connect(ctx, depth); err != nil {
		s.closed = true
		return nil, errors.Join(fmt.Errorf("redytier: new session of cache %s: %w", c.id, err), c.dismiss(s))
	}
	return s, nil
}

// connect dials every VM and imports what the session needs there.
func (s *Session) connect(ctx context.Context, depth int) error {
	for _, v := range s.table.vms {
		conn, lanes, err := s.dial(ctx, v, depth)
		if conn != nil {
			s.addConn(conn)
		}
		if err != nil {
			return fmt.Errorf("VM %s at %s: %w", v.id, v.fabricAddr, err)
		}
		s.lanes = append(s.lanes, lanes...)
	}
	return nil
}

// addConn makes a connection known to the session and to those who wake it.
func (s *Session) addConn(c *conn) {
	s.cache.mu.Lock()
	s.conns = append(s.conns, c)
	s.cache.mu.Unlock()
}

// dial connects to one VM. It returns the connection even on failure, if there
// is something of it to close.
func (s *Session) dial(ctx context.Context, v *vm, depth int) (*conn, []lane, error) {
	c := &conn{session: s, vm: v}
	lanes := make([]lane, len(v.tokens))
	for i := range lanes {
		lanes[i] = lane{conn: c, remote: remote{index: uint32(i)}}
	}
	if cause := v.lost.Load(); cause != nil {
		c.err = c.unavailable(*cause)
		return c, lanes, nil
	}
	hello := redywire.Hello{Ticket: v.ticket, Batch: s.cache.config.BatchSize, Depth: s.cache.config.QueueDepth}
	// A request may span regions and so take two places.
	room := 2 * depth
	if hello.Ringed() {
		r, err := newRing(s.cache.provider, hello.Batch, hello.Depth, room)
		if err != nil {
			return nil, nil, err
		}
		c.ring = r
		hello.Responses = r.responses.Token()
		room = hello.Depth
	} else {
		c.onesided = newFIFO[onesided](room)
	}
	qp, err := s.cache.ports[v].Dial(ctx, v.fabricAddr, hello.Encode(), room)
	if err != nil {
		return c, nil, err
	}
	c.qp = qp
	if c.ring != nil {
		return c, lanes, c.importRing(ctx)
	}
	for i, token := range v.tokens {
		r, err := qp.Import(ctx, token)
		if err != nil {
			return c, nil, fmt.Errorf("region %d: %w", i, err)
		}
		if r.Size < s.table.mask+1 {
			return c, nil, fmt.Errorf("region %d has %d bytes, want %d", i, r.Size, s.table.mask+1)
		}
		lanes[i].remote.Remote = r
	}
	return c, lanes, nil
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

// refresh takes notice of what changed in the cache: connections to lost VMs
// end, and all of them where the cache was deleted.
func (s *Session) refresh() {
	s.epoch = s.cache.epoch.Load()
	for _, c := range s.conns {
		if s.cache.deleted.Load() {
			c.fail(ErrDeleted)
		} else if cause := c.vm.lost.Load(); cause != nil {
			c.fail(*cause)
		}
	}
}

// wake makes a parked owner look at the cache's state and at whatever else it
// looks at. Called under the cache's mu, by which no connection is added
// meanwhile; one that its owner closes does not mind.
func (s *Session) wake() {
	for _, c := range s.conns {
		if c.qp != nil {
			c.qp.Wake()
		}
	}
}

// dismiss closes a session's connections and forgets it. The last session of a
// deleted cache closes the provider, under which its memory lives.
func (c *Cache) dismiss(s *Session) error {
	if s.parker != nil {
		s.parker.close()
	}
	var err error
	for _, conn := range s.conns {
		err = errors.Join(err, conn.close())
	}
	c.mu.Lock()
	delete(c.sessions, s)
	c.past.absorb(&s.counts)
	last := c.deleted.Load() && len(c.sessions) == 0
	c.mu.Unlock()
	if last {
		err = errors.Join(err, c.provider.Close())
	}
	if err != nil && !errors.Is(err, fabric.ErrDisconnected) {
		return fmt.Errorf("redytier: close session: %w", err)
	}
	return nil
}
