//go:build !linux

package ycsb

import "math"

// FreeBytes does not know: a disk that is full says so itself.
func FreeBytes(string) (int64, error) { return math.MaxInt64, nil }

// DiskBytes does not know either.
func DiskBytes(string) (all, free int64, err error) { return math.MaxInt64, math.MaxInt64, nil }

// InMemory says whether dir is known to be kept in memory, where there is
// neither an SSD nor direct I/O.
func InMemory(string) bool { return false }
