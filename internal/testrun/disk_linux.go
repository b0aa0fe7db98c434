package testrun

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallDisk mounts a file system in memory, of a size as mount takes it, until the test ends. It skips
// the test if it may not.
func SmallDisk(t testing.TB, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a small file system takes the right to mount one: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// FillDisk takes all space of a disk, with a file in its directory lost+found. FreeSpace gives it back.
func FillDisk(t testing.TB, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(ballast(dir)), 0o777); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(ballast(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	for chunk := make([]byte, 4096); err == nil; {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// FreeSpace gives back what FillDisk has taken.
func FreeSpace(t testing.TB, dir string) {
	t.Helper()
	if err := os.Remove(ballast(dir)); err != nil {
		t.Fatal(err)
	}
}

// ballast is in a directory that stores know as the file system's own.
func ballast(dir string) string { return filepath.Join(dir, "lost+found", "ballast") }
