package core

import (
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout bounds how long sent data may go unacknowledged.
func setUserTimeout(fd int, silence time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, max(1, int(silence.Milliseconds())))
}
