//go:build !linux

package machine

import "math"

// DiskBytes returns the largest sizes: they are not known here.
func DiskBytes(string) (all, free int64, err error) { return math.MaxInt64, math.MaxInt64, nil }

// InMemory says whether dir is known to be kept in memory, without an SSD or direct I/O.
func InMemory(string) bool { return false }
