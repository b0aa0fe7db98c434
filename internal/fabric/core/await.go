package core

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitData returns when the socket's peer has sent data or has closed. It consumes no data.
func awaitData(c net.Conn) error {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var b [1]byte
	return raw.Read(func(fd uintptr) bool {
		for {
			_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK)
			switch {
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				return false
			default:
				return true // the next read returns the error
			}
		}
	})
}
