// Package tempdir makes directories for the files of a run. Those of a run that was
// killed are removed by the next one: they may be most of a disk, or of memory.
//
// Beside each directory lies a file NAME.lock, locked for as long as the run lives. It
// comes by its name when it is locked already: one that can be locked is of a run that
// is over.
package tempdir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const suffix = ".lock"

// Dir is a directory that nobody else has.
type Dir struct {
	Path string
	lock *os.File // nil: the file system has no locks
}

// Make makes a directory in dir, with a name of a pattern as [os.MkdirTemp] has them, and
// removes those of that pattern whose runs were killed. An empty dir is where temporary
// files go.
func Make(dir, pattern string) (*Dir, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	Sweep(dir, pattern)
	path, err := os.MkdirTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	d := &Dir{Path: path}
	d.takeLock() // without it nobody removes the directory if this process cannot
	return d, nil
}

func (d *Dir) takeLock() {
	name := d.Path + suffix
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(name + ".new")
		return
	}
	d.lock = f
}

// Remove removes the directory with all that is in it.
func (d *Dir) Remove() error {
	err := os.RemoveAll(d.Path)
	if d.lock != nil {
		err = errors.Join(err, os.Remove(d.Path+suffix), d.lock.Close())
		d.lock = nil
	}
	return err
}

// Sweep removes what killed runs have left in dir under a pattern, as far as this user
// may.
func Sweep(dir, pattern string) {
	locks, _ := filepath.Glob(filepath.Join(dir, pattern+suffix)) // a bad pattern finds nothing
	for _, lock := range locks {
		sweep(strings.TrimSuffix(lock, suffix))
	}
}

func sweep(path string) {
	f, err := os.OpenFile(path+suffix, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return // its run lives, or somebody else removes it
	}
	if os.RemoveAll(path) == nil { // else the next one tries again
		_ = os.Remove(path + suffix)
	}
}
