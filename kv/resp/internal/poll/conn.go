package poll

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrWouldBlock is the error of a Read in a loop when no bytes have arrived.
var ErrWouldBlock = errors.New("poll: no bytes to read")

// Conn is a TCP connection that is owned by a goroutine or by a loop. Owned by a goroutine, it
// behaves as any net.Conn. Owned by a loop, it is a file that is not registered with Go's
// poller, which every packet would wake.
//
// The owner reads, writes, and hands the connection over. Other goroutines may call Close,
// CloseWrite and the deadlines.
type Conn struct {
	local, remote net.Addr

	mu   sync.Mutex // guards the fields below against goroutines that do not own the connection
	conn net.Conn   // the goroutine's connection; nil if a loop owns it
	fd   int        // the loop's file; -1 if a goroutine owns it, or after HangUp
}

// NewConn returns a connection that a goroutine owns.
func NewConn(conn *net.TCPConn) *Conn {
	return &Conn{local: conn.LocalAddr(), remote: conn.RemoteAddr(), conn: conn, fd: -1}
}

// Detach hands the connection over to a loop.
func (c *Conn) Detach() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	raw, err := c.conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	fd := -1
	if e := raw.Control(func(f uintptr) { fd, err = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		err = e
	}
	if err != nil {
		return err
	}
	_ = c.conn.Close() // fd keeps the connection open
	c.conn, c.fd = nil, fd
	return nil
}

// Attach hands the connection over to a goroutine. If it fails, the connection is closed.
func (c *Conn) Attach() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	file := os.NewFile(uintptr(c.fd), "client")
	c.fd = -1
	conn, err := net.FileConn(file)
	_ = file.Close() // FileConn has duplicated the file
	c.conn = conn
	return err
}

// File returns the loop's file, for its Poller.
func (c *Conn) File() int { return c.fd }

// HangUp closes the loop's file.
func (c *Conn) HangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = unix.Close(c.fd) // no reply is left to send
	c.fd = -1
}

// Owned returns the connection if a goroutine owns it, else nil.
func (c *Conn) Owned() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

// Read implements net.Conn for the owner. In a loop it does not wait.
func (c *Conn) Read(b []byte) (int, error) {
	if c.conn != nil {
		return c.conn.Read(b)
	}
	n, err := transfer(unix.SYS_READ, c.fd, b)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR): // after EINTR, the Poller reports the file again
		return 0, ErrWouldBlock
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn for the owner. In a loop it writes as much as fits into the
// socket's buffer, which may be nothing.
func (c *Conn) Write(b []byte) (int, error) {
	if c.conn != nil {
		return c.conn.Write(b)
	}
	n, err := transfer(unix.SYS_WRITE, c.fd, b)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return 0, nil
	case err != nil:
		return 0, os.NewSyscallError("write", err)
	}
	return n, nil
}

// Close implements net.Conn. A loop sees the end of the connection and calls HangUp.
func (c *Conn) Close() error { return c.end(unix.SHUT_RDWR, net.Conn.Close) }

// CloseWrite ends the direction to the client.
func (c *Conn) CloseWrite() error {
	return c.end(unix.SHUT_WR, func(c net.Conn) error { return c.(*net.TCPConn).CloseWrite() })
}

func (c *Conn) end(how int, owned func(net.Conn) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.conn != nil:
		return owned(c.conn)
	case c.fd >= 0:
		return os.NewSyscallError("shutdown", unix.Shutdown(c.fd, how))
	}
	return net.ErrClosed
}

// SetReadDeadline implements net.Conn. In a loop a deadline in the past ends the
// connection after the bytes that have arrived; a later one has no effect.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if conn := c.Owned(); conn != nil {
		return conn.SetReadDeadline(t)
	}
	if t.IsZero() || t.After(time.Now()) {
		return nil
	}
	return c.end(unix.SHUT_RD, func(c net.Conn) error { return c.SetReadDeadline(t) })
}

// SetWriteDeadline implements net.Conn. It has no effect in a loop, which never waits to write.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if conn := c.Owned(); conn != nil {
		return conn.SetWriteDeadline(t)
	}
	return nil
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }
