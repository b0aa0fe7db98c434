package smb

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// portions is the number of consecutive read deadlines that make up patience. A deadline that
// is noticed late, for example by a process that was stopped, counts for its portion only:
// time in which the process could not receive does not count.
const portions = 15

// watchedConn is a connection that breaks if the peer is silent for too long while requests
// are pending. It detects that it is broken even without a request.
type watchedConn struct {
	net.Conn
	patience time.Duration
	broken   atomic.Bool // set when onBreak has returned

	mu       sync.Mutex // guards the fields below
	pending  int        // pending requests
	extended time.Time  // about when the last bytes arrived
	left     int        // portions after the present one
	onBreak  func(error)
}

// notifyBreak sets the function that is called once when the connection breaks, or now if it has;
// f may be nil.
func (c *watchedConn) notifyBreak(f func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onBreak = f
	if f != nil && c.broken.Load() {
		f(net.ErrClosed)
		c.onBreak = nil
	}
}

func (c *watchedConn) breaks(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.onBreak != nil {
		c.onBreak(err)
		c.onBreak = nil
	}
	c.broken.Store(true)
}

// begin counts a pending request.
func (c *watchedConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending++; c.pending == 1 {
		c.extend(time.Now())
	}
}

// end counts a request that has ended.
func (c *watchedConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending--; c.pending == 0 {
		// An error means that the connection is closed.
		_ = c.SetReadDeadline(time.Time{})
	}
}

// extend starts the patience again. The caller holds mu.
func (c *watchedConn) extend(now time.Time) {
	c.extended, c.left = now, portions-1
	_ = c.SetReadDeadline(now.Add(c.patience / portions)) // fails only if closed
}

// again begins the next portion, and reports whether there is one.
func (c *watchedConn) again() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.pending == 0:
		_ = c.SetReadDeadline(time.Time{}) // end came first
	case c.left > 0:
		c.left--
		_ = c.SetReadDeadline(time.Now().Add(c.patience / portions))
	default:
		return false
	}
	return true
}

// Read implements net.Conn. Bytes that arrive extend the deadline.
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
	if now := time.Now(); c.pending > 0 && now.Sub(c.extended) > c.patience/8 {
		c.extend(now)
	}
	return n, nil
}

func (c *watchedConn) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.patience)) // fails only if closed
	n, err := c.Conn.Write(p)
	if err != nil {
		c.breaks(err)
	}
	return n, err
}
