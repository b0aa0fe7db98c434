package dirs

import (
	"errors"
	"os"
	"strings"
	"syscall"
)

const suffix = ".lock"

// Temp is a directory for the files of one run. If the run is killed, the next one removes it:
// such files may fill most of a disk, or of memory.
//
// A file NAME.lock beside the directory is locked until the run ends. It is locked before it
// is renamed to that name, so a process that can lock it knows that the run has ended.
type Temp struct {
	Path string
	lock *os.File // nil: the file system has no locks
}

// MakeTemp makes a directory in dir, named by a pattern of [os.MkdirTemp], and removes the
// directories of the same pattern that killed runs left. An empty dir means os.TempDir.
func MakeTemp(dir, pattern string) (*Temp, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	SweepTemp(dir, pattern)
	path, err := os.MkdirTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	d := &Temp{Path: path}
	d.takeLock() // if this fails, the directory stays after a kill
	return d, nil
}

func (d *Temp) takeLock() {
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

// Remove removes the directory and its contents.
func (d *Temp) Remove() error {
	err := os.RemoveAll(d.Path)
	if d.lock != nil {
		err = errors.Join(err, os.Remove(d.Path+suffix), d.lock.Close())
		d.lock = nil
	}
	return err
}

// SweepTemp removes the directories of a pattern that killed runs left in dir, as far as
// this user may.
func SweepTemp(dir, pattern string) {
	locks, _ := Match(dir, pattern+suffix) // none, in a directory that cannot be read
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
		return // its run is alive, or another process removes it
	}
	if os.RemoveAll(path) == nil { // if it fails, the next run tries again
		_ = os.Remove(path + suffix)
	}
}
