//go:build !linux

package poll

import (
	"errors"

	"golang.org/x/sys/unix"
)

// hangUps are the events of Gone.
const hangUps = unix.POLLHUP

// New fails: on this system each connection has a goroutine.
func New() (Poller, error) { return nil, errors.ErrUnsupported }
