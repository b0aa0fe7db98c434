//go:build !linux

package resp

import "errors"

// newPoller fails: every connection has a goroutine.
func newPoller() (poller, error) { return nil, errors.ErrUnsupported }
