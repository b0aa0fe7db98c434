//go:build !linux

package mem

import "errors"

// Group is a control group with a memory limit; this system has none.
type Group struct{}

// NewGroup fails.
func NewGroup(int64) (*Group, error) {
	return nil, errors.New("this system has no control groups")
}

// Version returns the version of control groups.
func (*Group) Version() int { return 0 }

// Add moves a process into the group.
func (*Group) Add(int) error { return errors.ErrUnsupported }

// Kills returns how many of the group's processes the kernel has killed at the limit.
func (*Group) Kills() int64 { return 0 }

// Close removes the group.
func (*Group) Close() error { return nil }
