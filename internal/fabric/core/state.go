package core

import (
	"fmt"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
)

// State holds the reason why a queue pair ended; the first reason stays. It is safe for
// concurrent use.
type State struct{ err atomic.Pointer[error] }

// Err returns the reason, or nil before the end.
func (s *State) Err() error {
	if p := s.err.Load(); p != nil {
		return *p
	}
	return nil
}

// End records the reason and reports whether this call was the first.
func (s *State) End(err error) bool { return s.err.CompareAndSwap(nil, &err) }

// CheckPrivate returns an error for private data that is too long.
func CheckPrivate(private []byte) error {
	if len(private) > fabric.MaxPrivate {
		return fmt.Errorf("%w: %d bytes, at most %d", fabric.ErrPrivate, len(private), fabric.MaxPrivate)
	}
	return nil
}

// CheckDepth returns an error for a depth outside [1, MaxDepth].
func CheckDepth(depth int) error {
	if depth < 1 || depth > MaxDepth {
		return fmt.Errorf("fabric: queue depth %d: want 1 to %d", depth, MaxDepth)
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
