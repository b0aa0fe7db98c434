package smb

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// portions is how many deadlines for reading patience is made of, one after the other. However
// late one of them is noticed, as by a process that was stopped, it counts for no more than
// its portion: the time in which nobody could listen is not held against the server.
const portions = 15

// watchedConn is a connection that breaks if the other end is silent for too long
// while requests are under way, and that knows that it is broken before anybody
// uses it.
type watchedConn struct {
	net.Conn
	patience time.Duration
	broken   atomic.Bool

	mu       sync.Mutex // guards what follows
	under    int        // requests under way
	extended time.Time  // when the server was last heard, about
	left     int        // portions that follow the one under way
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
		_ = c.SetReadDeadline(time.Time{})
	}
}

// extend begins the time anew in which something must be heard. The caller holds mu.
func (c *watchedConn) extend(now time.Time) {
	c.extended, c.left = now, portions-1
	_ = c.SetReadDeadline(now.Add(c.patience / portions)) // fails only if closed
}

// again begins the next portion, and reports whether there is one.
func (c *watchedConn) again() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.under == 0:
		_ = c.SetReadDeadline(time.Time{}) // end came first
	case c.left > 0:
		c.left--
		_ = c.SetReadDeadline(time.Now().Add(c.patience / portions))
	default:
		return false
	}
	return true
}

// Read implements net.Conn. What arrives is a sign of life.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.again() {
		n, err = c.Conn.Read(p)
	}
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
	_ = c.SetWriteDeadline(time.Now().Add(c.patience)) // fails only if closed
	n, err := c.Conn.Write(p)
	if err != nil {
		c.breaks(err)
	}
	return n, err
}
