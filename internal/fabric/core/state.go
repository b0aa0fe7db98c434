package core

import (
	"fmt"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
)

// State is how a queue pair ended, if it did: the first reason given stays.
// Safe for concurrent use.
type State struct{ err atomic.Pointer[error] }

// Err is nil while the queue pair lives.
func (s *State) Err() error {
	if p := s.err.Load(); p != nil {
		return *p
	}
	return nil
}

// End records why the queue pair ended and reports whether this call did so.
func (s *State) End(err error) bool { return s.err.CompareAndSwap(nil, &err) }

// CheckPrivate returns an error for private data that is too long.
func CheckPrivate(private []byte) error {
	if len(private) > fabric.MaxPrivate {
		return fmt.Errorf("%w: %d bytes, at most %d", fabric.ErrPrivate, len(private), fabric.MaxPrivate)
	}
	return nil
}

// CheckDepth returns an error for a depth that no queue pair may have.
func CheckDepth(depth int) error {
	if depth < 1 || depth > MaxDepth {
		return fmt.Errorf("fabric: depth %d outside [1, %d]", depth, MaxDepth)
	}
	return nil
}

// CheckBounds returns the error of an access to [offset, offset+n) of a region
// of size bytes, or nil.
func CheckBounds(offset int64, n int, size int64) error {
	if uint64(offset) > uint64(size) || int64(n) > size-offset {
		return fabric.ErrOutOfBounds
	}
	return nil
}
