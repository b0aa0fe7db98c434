package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

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

// DiskReads returns the bytes that this process has read from disks, also through the page
// cache and mapped files; 0 if it is not known.
func DiskReads() int64 { return processIO("read_bytes") }

// DiskWrites returns the bytes that this process has written to disks, or that it left in the page
// cache to be written; 0 if it is not known.
func DiskWrites() int64 { return processIO("write_bytes") }

// processIO returns a count of this process's input and output.
func processIO(name string) (count int64) {
	text, _ := os.ReadFile("/proc/self/io")
	_, after, _ := strings.Cut(string(text), "\n"+name+":")
	_, _ = fmt.Sscan(after, &count)
	return count
}

// InMemory reports whether dir, or the nearest of its parents that exists, is known to be in
// memory, without an SSD or direct I/O.
func InMemory(dir string) bool {
	if dir == "" {
		return false
	}
	var stat unix.Statfs_t
	err := unix.Statfs(dir, &stat)
	for up := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && up != dir; up = filepath.Dir(dir) {
		dir = up
		err = unix.Statfs(dir, &stat)
	}
	return err == nil && (stat.Type == unix.TMPFS_MAGIC || stat.Type == unix.RAMFS_MAGIC)
}

// allocated returns the space that a file takes on its disk.
func allocated(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}
