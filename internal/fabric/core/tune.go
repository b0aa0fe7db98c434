package core

import (
	"errors"
	"net"
	"time"
)

// Silence is the default time after which a peer that acknowledges, accepts or answers nothing
// is dead.
const Silence = 3 * time.Second

// Tune configures a connection for low latency and for fast detection of a dead host. It
// removes the greeting's deadline.
func Tune(c *net.TCPConn, silence time.Duration) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var timeout error
	err = raw.Control(func(fd uintptr) {
		timeout = setUserTimeout(int(fd), silence)
	})
	alive := net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}
	return errors.Join(err, timeout, c.SetNoDelay(true), c.SetKeepAliveConfig(alive), c.SetDeadline(time.Time{}))
}
