//go:build !linux

package ssdtier

import (
	"errors"
	"os"
)

// preallocate says that there is no way to take space ahead.
func preallocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

// syncData makes durable what a file holds.
func syncData(f *os.File) error { return f.Sync() }

// fileSystemSize says that there is no way to find it out.
func fileSystemSize(string) int64 { return 0 }
