package poll

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Gone reports whether the other side of a connection has closed it, or its direction to here, or whether
// this side has. A goroutine owns the connection. It is false for connections that are no sockets.
func Gone(conn net.Conn) bool {
	if c, ok := conn.(*Conn); ok {
		conn = c.Owned()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: hangUps}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 // after EINTR, a later call will tell
	})
	return gone || err != nil
}
