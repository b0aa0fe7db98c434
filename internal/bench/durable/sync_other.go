//go:build !linux

package durable

import "os"

// syncData syncs the file, since this system has no fdatasync.
func syncData(f *os.File) error { return f.Sync() }
