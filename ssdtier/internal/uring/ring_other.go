//go:build !linux

package uring

import (
	"context"
	"errors"
)

// Ring is none here.
type Ring struct{}

// New fails.
func New(int) (*Ring, error) { return nil, errors.ErrUnsupported }

// Spare reports whether there may be one more ring.
func Spare() bool { return false }

// Probe returns why rings do not work here.
func Probe() error { return errors.ErrUnsupported }

// Of a ring that cannot be made nothing is called.

func (*Ring) Read(int, []byte, int64, uint64) bool  { return false }
func (*Ring) Write(int, []byte, int64, uint64) bool { return false }
func (*Ring) Submit() error                         { return errors.ErrUnsupported }
func (*Ring) Retract() (uint64, bool)               { return 0, false }
func (*Ring) Reap([]Completion) int                 { return 0 }
func (*Ring) Wait(context.Context) error            { return errors.ErrUnsupported }
func (*Ring) Wake()                                 {}
func (*Ring) UnderWay() int                         { return 0 }
func (*Ring) Close() error                          { return nil }
