package allocator_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/affinity"
	"github.com/redykv/redykv/manager"
	"github.com/redykv/redykv/manager/allocator"
)

// Servers run only on the configured processors, whether they end with the allocator or
// not.
func TestLocalCPUs(t *testing.T) {
	_, theirs, err := affinity.Halves()
	if err != nil {
		t.Skip(err)
	}
	for _, state := range []string{"", t.TempDir()} {
		part := childRegisters
		if state != "" {
			part = childIsDeaf // its input ends at once
		}
		t.Setenv(childEnv, part)
		a, err := allocator.NewLocal(allocator.LocalOptions{Command: []string{os.Args[0]}, Memory: 16 << 20, CPUs: theirs, State: state, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		_, client := serve(t, manager.Options{Allocator: a})
		ca, err := allocateBytes(t, client, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		id := ca.GetGrants()[0].GetVm().GetId()
		pid := a.PIDs()[id]
		ended := processEnd(t, pid)
		var cpus affinity.CPUs
		if got := cpusOf(t, pid); cpus.Set(got) != nil || fmt.Sprint([]int(cpus)) != fmt.Sprint(theirs) {
			t.Errorf("state %q: the server may run on %s, want %v", state, got, theirs)
		}
		if !a.Kill(id) {
			t.Errorf("state %q: no server to kill", state)
		}
		if err := ended(); err != nil {
			t.Error(err)
		}
	}
	const none = 1000 // a CPU number that no test machine has
	if a, err := allocator.NewLocal(allocator.LocalOptions{CPUs: []int{none}, Logger: quiet()}); err == nil || !strings.Contains(err.Error(), "[1000]") {
		t.Errorf("an allocator of servers on a processor that there is not: %v, %v", a, err)
	}
}

// cpusOf returns the processors on which a process may run, in the kernel's format.
func cpusOf(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:")
	list, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(list)
}
