package affinity

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Confine restricts all threads of this process, and the processes that it starts, to some
// processors, and lowers GOMAXPROCS to their number. undo restores the caller's processors for
// all. One goroutine at a time may call either, while no thread is pinned.
func Confine(cpus []int) (undo func() error, err error) {
	before, err := allowedCPUs()
	if err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	if err := confine(cpus); err != nil {
		return nil, errors.Join(err, confine(before))
	}
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(min(procs, len(cpus)))
	return func() error {
		runtime.GOMAXPROCS(procs)
		return confine(before)
	}, nil
}

// confine repeats until there are no new threads: one that is not confined yet may start more.
func confine(cpus []int) error {
	mask := setOf(cpus)
	confined := map[int]bool{}
	for more := true; more; {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("affinity: threads of this process: %w", err)
		}
		more = false
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil || confined[id] {
				continue
			}
			if err := unix.SchedSetaffinity(id, &mask); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("affinity: keep a thread to processors %v: %w", cpus, err)
			}
			confined[id], more = true, true
		}
	}
	return nil
}
