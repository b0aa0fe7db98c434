package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/redykv/redykv/internal/dirs"
	"github.com/redykv/redykv/internal/machine"
)

// workDir is a new directory for files that a measurement makes.
type workDir struct {
	dir  *dirs.Temp // nil: it could not be made
	made []string   // the directories above it that were not there, the highest first
}

// makeWorkDir makes one with a name of a pattern, below dir or where temporary files
// go; not in memory, unless that is what dir says. Those of measurements that were
// killed are removed.
func makeWorkDir(dir, pattern string) (_ *workDir, err error) {
	if dir == "" {
		dir = os.TempDir()
		if machine.InMemory(dir) {
			dir = "."
		}
	}
	w := &workDir{made: missing(filepath.Clean(dir))}
	defer func() {
		if err != nil {
			_ = w.remove() // what went wrong is told already
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("directory %s: %w", dir, err)
	}
	if w.dir, err = dirs.MakeTemp(dir, pattern); err != nil {
		return nil, fmt.Errorf("directory %s is not writable: %w", dir, err)
	}
	return w, nil
}

// missing returns the directories on the way to dir that are not there, with dir.
func missing(dir string) (dirs []string) {
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			return dirs
		}
		dirs = slices.Insert(dirs, 0, dir)
		above := filepath.Dir(dir)
		if above == dir {
			return dirs
		}
		dir = above
	}
}

// remove removes the directory with all that is in it, and those above it that were
// made for it, unless somebody else has put something there.
func (w *workDir) remove() error {
	if w.dir != nil {
		if err := w.dir.Remove(); err != nil {
			return err
		}
	}
	for _, dir := range slices.Backward(w.made) {
		if os.Remove(dir) != nil {
			break
		}
	}
	return nil
}
