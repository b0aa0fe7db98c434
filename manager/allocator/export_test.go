package allocator

import "testing"

// Internals that the tests, which need a manager and so are outside the package, use.
type (
	ProcessFile  = processFile
	ProcessStamp = processStamp
)

const (
	ProcessSuffix = processSuffix
	LogSuffix     = logSuffix
)

func ProcessDir(state string) string { return processDir(state) }

func (a *Local) Path(id, suffix string) string { return a.path(id, suffix) }

func (a *Local) Write(f processFile) error { return a.write(f) }

// PIDs lists the running processes by VM.
func (a *Local) PIDs() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[string]int)
	for id, p := range a.vms {
		all[id] = p.pid
	}
	return all
}

// CheckEmpty checks that no process and no memory of the allocator is in use.
func (a *Local) CheckEmpty(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.vms) != 0 || a.budget.used != 0 {
		t.Errorf("%d processes, %d bytes are in use", len(a.vms), a.budget.used)
	}
}
