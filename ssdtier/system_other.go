//go:build !linux

package ssdtier

import (
	"errors"
	"os"
)

// preallocate is not supported on this system.
func preallocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

// preallocateOnly is not supported on this system.
func preallocateOnly(*os.File, int64, int64) error { return errors.ErrUnsupported }

// syncData makes a file's content durable.
func syncData(f *os.File) error { return f.Sync() }

// openDurable is the flag of files for writeDurably.
const openDurable = 0

// writeDurably writes to a file, and makes that durable.
func writeDurably(f *os.File, p []byte, off int64) error {
	if _, err := f.WriteAt(p, off); err != nil {
		return err
	}
	return f.Sync()
}

// fileSystemSize is unknown on this system.
func fileSystemSize(string) int64 { return 0 }

// openDirect is the flag that makes a file bypass the page cache, or 0.
const openDirect = 0

// askBlock is not called on systems without direct I/O.
func askBlock(*os.File) (block int, known bool) { return 0, true }
