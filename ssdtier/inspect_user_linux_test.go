package ssdtier

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// inspectedAs is the environment variable by which TestInspectAsOther runs itself in a directory.
const inspectedAs = "SSDTIER_INSPECTED_AS_OTHER"

// TestInspectAsOther checks that a directory is healthy also for a user who may read its files, but not
// the file LOCK.
func TestInspectAsOther(t *testing.T) {
	const nobody = 65534
	if os.Getenv(inspectedAs) != "" {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			t.Fatal(err)
		}
		if f, err := os.Open(lockName); !errors.Is(err, os.ErrPermission) {
			t.Fatalf("another user opens %s: %v, %v", lockName, f, err)
		}
		r, err := Inspect(".")
		if err != nil {
			t.Fatal(err)
		}
		wantFindings(t, "problems", r.Problems)
		wantFindings(t, "notes", r.Notes)
		if !r.OK() || r.InUse || len(r.Segments) != 4 {
			t.Errorf("%+v", r)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	d, _ := sickDirectory(t)
	entries, err := os.ReadDir(d.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Chmod(filepath.Join(d.Dir(), e.Name()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(d.Dir(), 0o755), os.Chmod(filepath.Join(d.Dir(), lockName), 0o600)); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self, "-test.run=^TestInspectAsOther$", "-test.count=1")
	child.Dir, child.Env = d.Dir(), append(os.Environ(), inspectedAs+"=1")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
