//go:build !linux

package machine

import (
	"io/fs"
	"math"
)

// DiskBytes returns the largest sizes: they are not known on this system.
func DiskBytes(string) (all, free int64, err error) { return math.MaxInt64, math.MaxInt64, nil }

// InMemory reports whether dir is known to be in memory, without an SSD or direct I/O.
func InMemory(string) bool { return false }

// DiskReads returns 0: what this process has read from disks is not known on this system.
func DiskReads() int64 { return 0 }

// DiskWrites returns 0: what this process has written to disks is not known on this system.
func DiskWrites() int64 { return 0 }

// allocated returns the size of a file.
func allocated(info fs.FileInfo) int64 { return info.Size() }
