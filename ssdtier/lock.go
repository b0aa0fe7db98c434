package ssdtier

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// dirLock locks a directory until it is closed, or the process ends. It is a lock of the directory
// itself, which nobody can take away as one can remove a file, and of the file LOCK in it, for file
// systems that cannot lock directories.
type dirLock struct {
	dir    *os.File
	locked bool     // dir is
	file   *os.File // nil if there is none
}

// lockDir locks a directory exclusively, for what changes it.
func lockDir(dir string) (*dirLock, error) { return lock(dir, syscall.LOCK_EX) }

// lockForReading locks a directory beside others that read it. It makes no file.
func lockForReading(dir string) (*dirLock, error) { return lock(dir, syscall.LOCK_SH) }

// lock does not wait.
func lock(dir string, how int) (_ *dirLock, err error) {
	l := new(dirLock)
	if l.dir, err = os.Open(dir); err != nil {
		return nil, wrap(err)
	}
	defer func() {
		if err != nil {
			_ = l.close() // nothing was written
		}
	}()
	switch err := flock(l.dir, how); {
	case err == nil:
		l.locked = true
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
	}
	path, exclusive := filepath.Join(dir, lockName), how == syscall.LOCK_EX
	if exclusive {
		l.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	} else {
		l.file, err = os.Open(path)
	}
	switch {
	case err == nil:
	case exclusive:
		return nil, fmt.Errorf("ssdtier: %s is not writable: %w", dir, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission) && l.locked:
		return l, nil
	default:
		return nil, wrap(err)
	}
	switch err := flock(l.file, how); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
	case err != nil && !l.locked:
		return nil, fmt.Errorf("ssdtier: lock %s: %w", dir, err)
	}
	return l, nil
}

func flock(f *os.File, how int) error { return syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB) }

func (l *dirLock) close() error {
	if l.file == nil {
		return wrap(l.dir.Close())
	}
	return wrap(errors.Join(l.file.Close(), l.dir.Close()))
}
