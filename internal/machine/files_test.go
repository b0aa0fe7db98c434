package machine

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/mem"
)

// TestInMemory checks what is said of directories on tmpfs and elsewhere, and below them.
func TestInMemory(t *testing.T) {
	for _, dir := range []string{"", "/proc", "/proc/no/such/directory"} {
		if InMemory(dir) {
			t.Errorf("%q is in memory", dir)
		}
	}
	if runtime.GOOS != "linux" || !InMemory("/dev/shm") {
		t.Skip("no directory in memory here")
	}
	if !InMemory("/dev/shm/no/such/directory") {
		t.Error("a directory that is to be made in memory")
	}
	dir, err := os.MkdirTemp("/dev/shm", "redykv-test-")
	if err != nil {
		t.Skip(err)
	}
	defer func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}()
	if err := Room(dir, 1<<20); err != nil {
		t.Error(err)
	}
	// More than is available, whatever the size of the file system is.
	if err := Room(dir, mem.Total()+1); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("room for more than the machine's memory: %v", err)
	}
}

// TestRoom checks the room on a disk.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	if err := Room(dir, 1); err != nil {
		t.Error(err)
	}
	if err := Room(dir, 1<<62); runtime.GOOS == "linux" && (err == nil || !strings.Contains(err.Error(), "the files need 4194304TiB")) {
		t.Error(err)
	}
	if err := Room(filepath.Join(dir, "none"), 1); runtime.GOOS == "linux" && err == nil {
		t.Error("room in a directory that does not exist")
	}
}

func TestFilesBytes(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "inner"), 0o755); err != nil {
		t.Fatal(err)
	}
	const size = 256 << 10
	for _, name := range []string{"a", "inner/b"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if runtime.GOOS == "linux" { // a hole takes no space
		if err := os.Truncate(filepath.Join(dir, "a"), 1<<30); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "inner/b"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil { // space is allocated when pages are written
			t.Error(err)
		}
		_ = f.Close()
	}
	if n, err := FilesBytes(dir); err != nil || n < 2*size || n > 4*size {
		t.Errorf("%d bytes, %v, want about %d", n, err, 2*size)
	}
	if _, err := FilesBytes(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a directory that does not exist")
	}
}
