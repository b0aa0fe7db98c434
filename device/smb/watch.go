package smb

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// watchedConn is a connection that breaks if the other end is silent for too long
// while requests are under way, and that knows that it is broken before anybody
// uses it.
type watchedConn struct {
	net.Conn
	patience time.Duration
	broken   atomic.Bool

	mu       sync.Mutex // guards what follows
	under    int        // requests under way
	extended time.Time  // when the deadline was last moved
	onBreak  func(error)
}

// tell has f told, once, when the connection breaks, or nobody, if f is nil.
func (c *watchedConn) tell(f func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onBreak = f
}

func (c *watchedConn) breaks(err error) {
	c.broken.Store(true)
	c.mu.Lock()
	f := c.onBreak
	c.onBreak = nil
	c.mu.Unlock()
	if f != nil {
		f(err)
	}
}

// begin counts a request in.
func (c *watchedConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under++; c.under == 1 {
		c.extend(time.Now())
	}
}

// end counts a request out.
func (c *watchedConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under--; c.under == 0 {
		// Of a connection that is closed nobody needs the deadline.
		_ = c.SetDeadline(time.Time{})
	}
}

// extend moves the deadline. The caller holds mu.
func (c *watchedConn) extend(now time.Time) {
	c.extended = now
	_ = c.SetDeadline(now.Add(c.patience)) // fails only if closed
}

// Read implements net.Conn. What arrives is a sign of life.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.breaks(err)
		return n, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.under > 0 && now.Sub(c.extended) > c.patience/8 {
		c.extend(now)
	}
	return n, nil
}

// Write implements net.Conn.
func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.breaks(err)
	}
	return n, err
}
