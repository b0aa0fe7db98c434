//go:build unix

package core

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// spoken returns when the peer of a socket has sent something or has ended. It consumes
// nothing.
func spoken(c net.Conn) error {
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
				return true // an error is found by whoever reads
			}
		}
	})
}
