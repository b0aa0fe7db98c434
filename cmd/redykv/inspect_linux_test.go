package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

// TestInspectIsInterrupted: the first signal ends an inspection, which may take long.
func TestInspectIsInterrupted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "FORMAT")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "redykv", "inspect", filepath.Dir(file))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	reads, err := os.OpenFile(file, os.O_WRONLY, 0) // returns when the program has opened it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reads.Close() }()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = testrun.Receive(t, "the program ends", ended)
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
}
