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

// workDir is a new directory for the files of a measurement.
type workDir struct {
	dir  *dirs.Temp // nil: it could not be made
	made []string   // the parent directories made for it, the highest first
}

// makeWorkDir makes a directory named by pattern in dir, or in the directory of temporary
// files unless that is in memory. It removes the directories of killed measurements.
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
			_ = w.remove() // the first error is returned
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

// missing returns dir and its parents that do not exist.
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

// remove removes the directory, and the parents that were made for it if they are empty.
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
