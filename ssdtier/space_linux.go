package ssdtier

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// preallocate allocates space on the disk for a part of a file, and extends the file to it.
func preallocate(f *os.File, from, to int64) error {
	return control(f, "fallocate", func(fd int) error { return unix.Fallocate(fd, 0, from, to-from) })
}

// fileSystemSize is the size in bytes of a directory's file system; 0 if unknown.
func fileSystemSize(dir string) int64 {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0
	}
	return int64(stat.Blocks) * int64(stat.Bsize) //nolint:unconvert // it has 32 bits on some machines
}

// syncData makes a file's content durable, and the attributes that reading it needs.
func syncData(f *os.File) error { return control(f, "fdatasync", unix.Fdatasync) }

// control makes a system call for a file.
func control(f *os.File, name string, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		for callErr = unix.EINTR; errors.Is(callErr, unix.EINTR); {
			callErr = call(int(fd))
		}
	})
	if err = errors.Join(err, callErr); err != nil {
		return fmt.Errorf("%s %s: %w", name, f.Name(), err)
	}
	return nil
}
