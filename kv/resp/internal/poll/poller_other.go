//go:build !linux

package poll

import "errors"

// New fails: on this system each connection has a goroutine.
func New() (Poller, error) { return nil, errors.ErrUnsupported }
