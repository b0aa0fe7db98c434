package dirs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const pattern = "run-*"

// TestMain runs the test binary as a process that makes a directory and waits to be killed, if
// DIRS_TEMP_IN is set.
func TestMain(m *testing.M) {
	if dir := os.Getenv("DIRS_TEMP_IN"); dir != "" {
		d, err := MakeTemp(dir, pattern)
		if err == nil {
			err = os.WriteFile(filepath.Join(d.Path, "data"), []byte("much"), 0o600)
		}
		if err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString(d.Path + "\n")
		select {}
	}
	os.Exit(m.Run())
}

// entries returns the names in dir.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// TestLeftBehind checks that the next run removes the directory of a killed run, and keeps
// those of living runs and those without a lock.
func TestLeftBehind(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run-by-hand"), 0o700); err != nil {
		t.Fatal(err)
	}
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), "DIRS_TEMP_IN="+dir)
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill() }()
	line := make([]byte, 4096)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	theirs := strings.TrimSpace(string(line[:n]))
	ours, err := MakeTemp(dir, pattern)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(theirs, "data")); err != nil {
		t.Errorf("a living run's: %v", err)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // it fails, as the process was killed
	SweepTemp(dir, pattern)
	if got := strings.Join(entries(t, dir), " "); strings.Contains(got, filepath.Base(theirs)) || !strings.Contains(got, filepath.Base(ours.Path)) {
		t.Errorf("after a run was killed there are %s", got)
	}
	if err := ours.Remove(); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, dir); len(got) != 1 || got[0] != "run-by-hand" {
		t.Errorf("there are %q", got)
	}
}
