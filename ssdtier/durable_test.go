package ssdtier

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/redykv/redykv/internal/dirs"
)

// TestNewDirectories: Open makes the names of all directories that it creates durable.
func TestNewDirectories(t *testing.T) {
	top := t.TempDir()
	var synced []string
	fsync := dirs.Fsync
	dirs.Fsync = func(dir string) error {
		synced = append(synced, dir)
		return fsync(dir)
	}
	defer func() { dirs.Fsync = fsync }()
	mustOpen(t, filepath.Join(top, "a", "b", "c"), Options{})
	for _, dir := range []string{top, filepath.Join(top, "a"), filepath.Join(top, "a", "b")} {
		if !slices.Contains(synced, dir) {
			t.Errorf("%s was not synced, only %q", dir, synced)
		}
	}
}
