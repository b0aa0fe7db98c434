package ycsb

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FreeBytes is how much can still be written below dir.
func FreeBytes(dir string) (int64, error) {
	_, free, err := DiskBytes(dir)
	return free, err
}

// DiskBytes is how much the file system that dir is on has in all, and how much of it can
// still be written.
func DiskBytes(dir string) (all, free int64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, 0, fmt.Errorf("directory %s: %w", dir, err)
	}
	return int64(stat.Blocks) * stat.Bsize, int64(stat.Bavail) * stat.Bsize, nil
}

// InMemory says whether dir is known to be kept in memory, where there is
// neither an SSD nor direct I/O.
func InMemory(dir string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(dir, &stat) == nil && stat.Type == unix.TMPFS_MAGIC
}
