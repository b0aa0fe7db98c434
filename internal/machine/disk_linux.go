package machine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// DiskBytes returns the size of the file system that holds dir, and its free space.
func DiskBytes(dir string) (all, free int64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, 0, fmt.Errorf("directory %s: %w", dir, err)
	}
	return int64(stat.Blocks) * stat.Bsize, int64(stat.Bavail) * stat.Bsize, nil
}

// InMemory reports whether dir is known to be in memory, without an SSD or direct I/O.
func InMemory(dir string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(dir, &stat) == nil && stat.Type == unix.TMPFS_MAGIC
}
