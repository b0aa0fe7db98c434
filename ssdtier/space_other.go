//go:build !linux

package ssdtier

import (
	"errors"
	"os"
)

// preallocate is not supported on this system.
func preallocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

// syncData makes a file's content durable.
func syncData(f *os.File) error { return f.Sync() }

// fileSystemSize is unknown on this system.
func fileSystemSize(string) int64 { return 0 }
