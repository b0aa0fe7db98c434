package resp

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// errWouldBlock says that nothing has arrived.
var errWouldBlock = errors.New("resp: nothing to read")

// loopConn is a TCP connection that either belongs to a goroutine, and is a net.Conn
// like others, or to a loop, as a file that the runtime's own poller does not know: it
// would be woken by everything that arrives.
//
// Its owner, the goroutine or the loop, reads and writes, and changes the one into the
// other. Others may end it: Close and the deadlines may be called by anybody.
type loopConn struct {
	local, remote net.Addr

	mu   sync.Mutex // guards what follows against who is not the owner
	conn net.Conn   // nil: a loop has it…
	fd   int        // …as this file; -1: or nobody any more
}

func newLoopConn(conn *net.TCPConn) *loopConn {
	return &loopConn{local: conn.LocalAddr(), remote: conn.RemoteAddr(), conn: conn, fd: -1}
}

// detach makes the connection a loop's.
func (l *loopConn) detach() error {
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
	_ = l.conn.Close() // the other file goes on
	l.conn, l.fd = nil, fd
	return nil
}

// attach makes it a goroutine's again. Whatever happens, the loop has it no more.
func (l *loopConn) attach() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	file := os.NewFile(uintptr(l.fd), "client")
	l.fd = -1
	conn, err := net.FileConn(file)
	_ = file.Close() // the connection has one of its own
	l.conn = conn
	return err
}

// hangUp ends it for the loop that has it.
func (l *loopConn) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = unix.Close(l.fd) // all that can be said has been
	l.fd = -1
}

// owner is the connection as a goroutine has it; nil: a loop has it, or nobody.
func (l *loopConn) owner() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// Read implements net.Conn, for the owner. In a loop it does not wait.
func (l *loopConn) Read(b []byte) (int, error) {
	if l.conn != nil {
		return l.conn.Read(b)
	}
	n, err := readHeld(l.fd, b)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR): // who waits is told again
		return 0, errWouldBlock
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn, for the owner. In a loop it writes what fits.
func (l *loopConn) Write(b []byte) (int, error) {
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

// Close implements net.Conn. A loop finds out, and ends the connection.
func (l *loopConn) Close() error { return l.end(unix.SHUT_RDWR, net.Conn.Close) }

// CloseWrite tells the client that nothing more comes.
func (l *loopConn) CloseWrite() error {
	return l.end(unix.SHUT_WR, func(c net.Conn) error { return c.(*net.TCPConn).CloseWrite() })
}

func (l *loopConn) end(how int, goroutines func(net.Conn) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.conn != nil:
		return goroutines(l.conn)
	case l.fd >= 0:
		return os.NewSyscallError("shutdown", unix.Shutdown(l.fd, how))
	}
	return net.ErrClosed
}

// SetReadDeadline implements net.Conn. A loop only knows deadlines that are over: it
// reads what has arrived, and then ends the connection.
func (l *loopConn) SetReadDeadline(t time.Time) error {
	if conn := l.owner(); conn != nil {
		return conn.SetReadDeadline(t)
	}
	if t.IsZero() || t.After(time.Now()) {
		return nil
	}
	return l.end(unix.SHUT_RD, func(c net.Conn) error { return c.SetReadDeadline(t) })
}

// SetWriteDeadline implements net.Conn. A loop never waits in order to write.
func (l *loopConn) SetWriteDeadline(t time.Time) error {
	if conn := l.owner(); conn != nil {
		return conn.SetWriteDeadline(t)
	}
	return nil
}

// SetDeadline implements net.Conn.
func (l *loopConn) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}

// LocalAddr implements net.Conn.
func (l *loopConn) LocalAddr() net.Addr { return l.local }

// RemoteAddr implements net.Conn.
func (l *loopConn) RemoteAddr() net.Addr { return l.remote }
