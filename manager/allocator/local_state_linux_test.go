package allocator_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
)

// Processes outlive an allocator with a state directory. The next allocator takes over the
// wanted ones, ends the others, and does not mistake other processes for its own.
func TestLocalRestore(t *testing.T) {
	t.Setenv(childEnv, childIsDeaf)
	dir := t.TempDir()
	newAllocator := func() *allocator.Local {
		a, err := allocator.NewLocal(allocator.LocalOptions{Command: []string{os.Args[0]}, Memory: 3 << 20, State: dir, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := newAllocator()
	m, client := serve(t, manager.Options{Allocator: first, VMMemory: 1 << 20})
	ca, err := allocateBytes(t, client, 3<<20)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	ended := make(map[string]func() error)
	for _, s := range ca.GetGrants() {
		id := s.GetVm().GetId()
		ids = append(ids, id)
		ended[id] = processEnd(t, first.PIDs()[id])
	}
	wanted, unwanted, forged := ids[0], ids[1], ids[2]
	forgedPID := first.PIDs()[forged]
	if err := m.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}

	// One file has a pid that another process uses now, one is invalid, and one is of a process
	// that was never started.
	path := filepath.Join(allocator.ProcessDir(dir), forged+allocator.ProcessSuffix)
	if err := first.Write(allocator.ProcessFile{ID: forged, Which: allocator.ProcessStamp{PID: os.Getpid()}, Memory: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(allocator.ProcessDir(dir), "torn"+allocator.ProcessSuffix), []byte(`{"id"`), 0o600); err != nil {
		t.Fatal(err)
	}

	unstarted := filepath.Join(allocator.ProcessDir(dir), "unstarted"+allocator.LogSuffix)
	if err := os.WriteFile(unstarted, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	second := newAllocator()
	// A manager does not call Restore of this allocator: the test does.
	_, client = serve(t, manager.Options{Allocator: struct{ allocator.Allocator }{second}})
	running, err := second.Restore(testContext(t), 2, []string{wanted}, []string{forged})
	if err != nil || !slices.Equal(running, []string{wanted}) {
		t.Errorf("running %v, %v, want %s", running, err, wanted)
	}
	if err := ended[unwanted](); err != nil {
		t.Error(err)
	}
	for _, gone := range []string{path, filepath.Join(allocator.ProcessDir(dir), "torn"+allocator.ProcessSuffix), second.Path(unwanted, allocator.LogSuffix), unstarted} {
		if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", gone, err)
		}
	}
	if _, err := allocateBytes(t, client, 3<<20); err == nil {
		t.Error("the memory of the restored VM was given to another")
	}
	if err := second.Terminate(testContext(t), wanted, ""); err != nil {
		t.Error(err)
	}
	if err := ended[wanted](); err != nil {
		t.Error(err)
	}
	second.CheckEmpty(t)

	// The forged file no longer names its VM's process, so the test ends the process.
	if err := errors.Join(syscall.Kill(forgedPID, syscall.SIGKILL), ended[forged]()); err != nil {
		t.Error(err)
	}
}

// A process that cannot be started leaves no file behind.
func TestFailedLaunchLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	a, err := allocator.NewLocal(allocator.LocalOptions{Command: []string{filepath.Join(dir, "nothing")}, Memory: 1 << 20, State: dir, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	_, client := serve(t, manager.Options{Allocator: a})
	if _, err := allocateBytes(t, client, 1<<20); err == nil {
		t.Fatal("what is not there was started")
	}
	left, err := os.ReadDir(allocator.ProcessDir(dir))
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	a.CheckEmpty(t)
}
