package ssdtier

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// preallocate allocates space on the disk for a part of a file, and extends the file to it.
func preallocate(f *os.File, from, to int64) error { return allocate(f, 0, from, to) }

// preallocateOnly allocates space on the disk for a part of a file, whose length stays.
func preallocateOnly(f *os.File, from, to int64) error {
	return allocate(f, unix.FALLOC_FL_KEEP_SIZE, from, to)
}

func allocate(f *os.File, mode uint32, from, to int64) error {
	return control(f, "fallocate", func(fd int) error { return unix.Fallocate(fd, mode, from, to-from) })
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

// openDurable is the flag of files for writeDurably.
const openDurable = unix.O_DSYNC

// writeDurably writes to a file that was opened with openDurable, and makes that durable: one
// request to the disk, where a write and an fdatasync are two.
func writeDurably(f *os.File, p []byte, off int64) error {
	_, err := f.WriteAt(p, off)
	return err
}

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

// openDirect is the flag that makes a file bypass the page cache, or 0.
const openDirect = unix.O_DIRECT

// askBlock asks the kernel for the unit of direct I/O on a file. known is false if kernel or
// file system do not tell; a block of 0 means that the file does not support direct I/O.
func askBlock(f *os.File) (block int, known bool) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err != nil {
		return 0, false
	}
	if st.Mask&unix.STATX_DIOALIGN == 0 {
		return 0, false
	}
	if st.Dio_offset_align == 0 || st.Dio_mem_align == 0 {
		return 0, true
	}
	return int(max(st.Dio_offset_align, st.Dio_mem_align)), true
}
