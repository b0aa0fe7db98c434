//go:build !linux

package uring

import (
	"context"
	"errors"
)

// Ring is not available on this system.
type Ring struct{}

// New fails.
func New(int) (*Ring, error) { return nil, errors.ErrUnsupported }

// Spare returns false: no ring can be made.
func Spare() bool { return false }

// Probe returns an error: rings are not available on this system.
func Probe() error { return errors.ErrUnsupported }

// The methods are never called, because New fails.

func (*Ring) Read(int, []byte, int64, uint64) bool  { return false }
func (*Ring) Write(int, []byte, int64, uint64) bool { return false }
func (*Ring) Submit() error                         { return errors.ErrUnsupported }
func (*Ring) Retract() (uint64, bool)               { return 0, false }
func (*Ring) Reap([]Completion) int                 { return 0 }
func (*Ring) Wait(context.Context) error            { return errors.ErrUnsupported }
func (*Ring) Wake()                                 {}
func (*Ring) Pending() int                          { return 0 }
func (*Ring) Close() error                          { return nil }
