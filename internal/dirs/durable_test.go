package dirs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// recordSyncs records which directories existed at the last fsync of their parents. The k-th
// fsync fails; 0: none does.
func recordSyncs(t *testing.T, k int) (durable map[string]bool) {
	t.Helper()
	durable = make(map[string]bool)
	fsync := Fsync
	Fsync = func(dir string) error {
		if k--; k == 0 {
			return syscall.EIO
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			durable[filepath.Join(dir, e.Name())] = true
		}
		return fsync(dir)
	}
	t.Cleanup(func() { Fsync = fsync })
	return durable
}

// TestMkdirAll checks that all new names on a path are durable, even if an earlier attempt
// failed at any step.
func TestMkdirAll(t *testing.T) {
	for k := range 5 {
		top := t.TempDir()
		dir := filepath.Join(top, "a", "b", "c")
		durable := recordSyncs(t, k)
		if err := MkdirAll(dir, 0o777); (err == nil) != (k == 0) {
			t.Errorf("fsync %d of 4 fails: %v", k, err)
		}
		if err := MkdirAll(dir+"/", 0o777); err != nil {
			t.Error(err)
		}
		for name := dir; name != top; name = filepath.Dir(name) {
			if info, err := os.Stat(name); err != nil || !info.IsDir() || !durable[name] {
				t.Errorf("fsync %d failed before: %s: %v, durable: %v", k, name, err, durable[name])
			}
		}
	}
}

// TestMkdirAllRefuses checks that the error names a file in the way of a directory.
func TestMkdirAllRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(file, "nowhere"), link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "a"), link} {
		var path *fs.PathError
		if err := MkdirAll(dir, 0o777); !errors.As(err, &path) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
