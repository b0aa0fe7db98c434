package affinity

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allowedCPUs are the processors that this thread may run on.
func allowedCPUs() ([]int, error) {
	var mask unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mask); err != nil {
		return nil, fmt.Errorf("getting the processors of this process: %w", err)
	}
	var cpus []int
	for c := 0; len(cpus) < mask.Count(); c++ {
		if mask.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus, nil
}

// currentCPU is the processor on which the caller runs now, -1 if unknown.
func currentCPU() int {
	var cpu uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return -1
	}
	return int(cpu)
}

// pin locks the goroutine to its thread, and the thread to processors.
func pin(cpus ...int) (undo func(), err error) {
	runtime.LockOSThread()
	var before unix.CPUSet
	err = unix.SchedGetaffinity(0, &before)
	if err == nil {
		mask := setOf(cpus)
		err = unix.SchedSetaffinity(0, &mask)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	return func() {
		if unix.SchedSetaffinity(0, &before) == nil {
			runtime.UnlockOSThread()
		}
	}, nil
}

func setOf(cpus []int) (mask unix.CPUSet) {
	for _, cpu := range cpus {
		mask.Set(cpu)
	}
	return mask
}

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
			return fmt.Errorf("affinity: listing the threads of this process: %w", err)
		}
		more = false
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil || confined[id] {
				continue
			}
			if err := unix.SchedSetaffinity(id, &mask); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("affinity: restricting a thread to processors %v: %w", cpus, err)
			}
			confined[id], more = true, true
		}
	}
	return nil
}
