package core

import (
	"errors"
	"net"
	"time"
)

// Silence is how long, by default, a peer may leave data unacknowledged, not take any,
// or not answer when asked whether it is there, before it counts as dead.
const Silence = 3 * time.Second

// Tune makes a connection quick, and quick to notice that its peer's host is dead. It
// takes the deadline of the greeting off.
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
