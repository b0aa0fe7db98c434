//go:build !linux

package machine

import "math"

// DiskBytes returns the largest sizes: they are not known on this system.
func DiskBytes(string) (all, free int64, err error) { return math.MaxInt64, math.MaxInt64, nil }

// InMemory reports whether dir is known to be in memory, without an SSD or direct I/O.
func InMemory(string) bool { return false }
