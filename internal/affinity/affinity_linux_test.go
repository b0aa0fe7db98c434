package affinity

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// All threads of a confined process, those that it begins later, and its children keep to
// its processors, until that is undone.
func TestConfine(t *testing.T) {
	mine, others, err := Halves()
	if err != nil {
		t.Skip(err)
	}
	before, err := allowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	procs := runtime.GOMAXPROCS(0)
	undo, err := Confine(mine)
	if err != nil {
		t.Fatal(err)
	}
	here := func() []int {
		t.Helper()
		cpus, err := allowedCPUs()
		if err != nil {
			t.Error(err)
		}
		return cpus
	}
	const threads = 4 // at once, so that some are new
	var seen [threads][]int
	ready, all := make(chan struct{}), make(chan struct{})
	for i := range threads {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			seen[i] = here()
			ready <- struct{}{}
			<-all
		}()
	}
	for range threads {
		<-ready
	}
	close(all)
	for i, cpus := range seen {
		if !sameCPUs(cpus, mine) {
			t.Errorf("thread %d may run on %v, want %v", i, cpus, mine)
		}
	}
	for _, cpus := range everyThread(t) {
		if !sameCPUs(cpus, mine) {
			t.Errorf("a thread may run on %v, want %v", cpus, mine)
		}
	}
	if n := runtime.GOMAXPROCS(0); n > len(mine) {
		t.Errorf("GOMAXPROCS is %d on %d processors", n, len(mine))
	}
	if cpus := childCPUs(t); !sameCPUs(cpus, mine) {
		t.Errorf("a child may run on %v, want %v", cpus, mine)
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	for _, cpus := range everyThread(t) {
		if !slices.Equal(cpus, before) {
			t.Errorf("afterwards a thread may run on %v, want %v", cpus, before)
		}
	}
	if n := runtime.GOMAXPROCS(0); n != procs {
		t.Errorf("afterwards GOMAXPROCS is %d, before %d", n, procs)
	}
	// The thread of a locked goroutine alone, and what it starts.
	done := make(chan struct{})
	go func() {
		defer close(done)
		undo, err := ConfineThread(others)
		if err != nil {
			t.Error(err)
			return
		}
		defer undo()
		if cpus := here(); !sameCPUs(cpus, others) {
			t.Errorf("the thread may run on %v, want %v", cpus, others)
		}
		if cpus := childCPUs(t); !sameCPUs(cpus, others) {
			t.Errorf("its child may run on %v, want %v", cpus, others)
		}
	}()
	<-done
	if cpus := here(); !slices.Equal(cpus, before) {
		t.Errorf("another thread may run on %v, want %v", cpus, before)
	}
}

// Processors that there are not are refused, and change nothing.
func TestConfineRefuses(t *testing.T) {
	before, err := allowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	const none = 1000 // as a mask has it, and no machine of a test
	if slices.Contains(before, none) {
		t.Skip("a large machine")
	}
	if _, err := Confine([]int{none}); err == nil {
		t.Error("confined to a processor that there is not")
	}
	if _, err := ConfineThread([]int{none}); err == nil {
		t.Error("a thread is confined to a processor that there is not")
	}
	for _, cpus := range everyThread(t) {
		if !slices.Equal(cpus, before) {
			t.Errorf("a thread may run on %v, want %v", cpus, before)
		}
	}
}

// sameCPUs compares processors in any order.
func sameCPUs(a, b []int) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// everyThread is where each thread of this process may run.
func everyThread(t *testing.T) (all [][]int) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err != nil {
			continue // it has ended
		}
		all = append(all, allowedBy(t, string(status)))
	}
	if len(all) == 0 {
		t.Fatal("no threads")
	}
	return all
}

// childCPUs is where a process that this thread starts may run.
func childCPUs(t *testing.T) []int {
	t.Helper()
	status, err := exec.Command("cat", "/proc/self/status").Output()
	if err != nil {
		t.Error(err)
	}
	return allowedBy(t, string(status))
}

// allowedBy reads a status of the kernel's.
func allowedBy(t *testing.T, status string) []int {
	t.Helper()
	_, rest, _ := strings.Cut(status, "Cpus_allowed_list:")
	list, _, _ := strings.Cut(rest, "\n")
	cpus, err := parseList(list)
	if err != nil || len(cpus) == 0 {
		t.Errorf("%q: %v, %v", list, cpus, err)
	}
	return cpus
}
