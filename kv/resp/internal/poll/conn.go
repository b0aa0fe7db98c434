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
func (l *Conn) Detach() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	raw, err := l.conn.(*net.TCPConn).SyscallConn()
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
	_ = l.conn.Close() // fd keeps the connection open
	l.conn, l.fd = nil, fd
	return nil
}

// Attach hands the connection over to a goroutine. If it fails, the connection is closed.
func (l *Conn) Attach() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	file := os.NewFile(uintptr(l.fd), "client")
	l.fd = -1
	conn, err := net.FileConn(file)
	_ = file.Close() // FileConn has duplicated the file
	l.conn = conn
	return err
}

// File returns the loop's file, for its Poller.
func (l *Conn) File() int { return l.fd }

// HangUp closes the loop's file.
func (l *Conn) HangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = unix.Close(l.fd) // no reply is left to send
	l.fd = -1
}

// Owned returns the connection if a goroutine owns it, else nil.
func (l *Conn) Owned() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// Read implements net.Conn for the owner. In a loop it does not wait.
func (l *Conn) Read(b []byte) (int, error) {
	if l.conn != nil {
		return l.conn.Read(b)
	}
	n, err := readHeld(l.fd, b)
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
func (l *Conn) Write(b []byte) (int, error) {
	if l.conn != nil {
		return l.conn.Write(b)
	}
	n, err := writeHeld(l.fd, b)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return 0, nil
	case err != nil:
		return 0, os.NewSyscallError("write", err)
	}
	return n, nil
}

// Close implements net.Conn. A loop sees the end of the connection and calls HangUp.
func (l *Conn) Close() error { return l.end(unix.SHUT_RDWR, net.Conn.Close) }

// CloseWrite ends the direction to the client.
func (l *Conn) CloseWrite() error {
	return l.end(unix.SHUT_WR, func(c net.Conn) error { return c.(*net.TCPConn).CloseWrite() })
}

func (l *Conn) end(how int, owned func(net.Conn) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.conn != nil:
		return owned(l.conn)
	case l.fd >= 0:
		return os.NewSyscallError("shutdown", unix.Shutdown(l.fd, how))
	}
	return net.ErrClosed
}

// SetReadDeadline implements net.Conn. In a loop a deadline in the past ends the
// connection after the bytes that have arrived; a later one has no effect.
func (l *Conn) SetReadDeadline(t time.Time) error {
	if conn := l.Owned(); conn != nil {
		return conn.SetReadDeadline(t)
	}
	if t.IsZero() || t.After(time.Now()) {
		return nil
	}
	return l.end(unix.SHUT_RD, func(c net.Conn) error { return c.SetReadDeadline(t) })
}

// SetWriteDeadline implements net.Conn. It has no effect in a loop, which never waits to write.
func (l *Conn) SetWriteDeadline(t time.Time) error {
	if conn := l.Owned(); conn != nil {
		return conn.SetWriteDeadline(t)
	}
	return nil
}

// SetDeadline implements net.Conn.
func (l *Conn) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}

// LocalAddr implements net.Conn.
func (l *Conn) LocalAddr() net.Addr { return l.local }

// RemoteAddr implements net.Conn.
func (l *Conn) RemoteAddr() net.Addr { return l.remote }
