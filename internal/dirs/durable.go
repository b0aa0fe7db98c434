// Package dirs makes durable directories, whose names survive a power failure, and temporary
// ones, which the next run removes if the process is killed.
package dirs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Fsync makes the names in a directory durable. Tests replace it.
var Fsync = func(dir string) error {
	f, err := os.Open(dir)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	return err
}

func syncDir(dir string) error {
	if err := Fsync(dir); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// MkdirAll makes a directory and its missing parents, as os.MkdirAll does, and makes the
// name of each durable before it makes the next one. The name of the deepest existing
// directory is synced too, where that is possible: the process that made it may have ended
// before its own sync.
func MkdirAll(dir string, perm fs.FileMode) error {
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case err == nil:
		if err := syncDir(parent); errors.Is(err, syscall.EIO) {
			return err
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if parent != dir {
		if err := MkdirAll(parent, perm); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, perm); err != nil {
		if info, statErr := os.Stat(dir); statErr != nil || !info.IsDir() { // another process may have made it
			return err
		}
	}
	return syncDir(parent)
}
