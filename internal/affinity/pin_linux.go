package affinity

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allowedCPUs are the processors that this thread may run on.
func allowedCPUs() ([]int, error) {
	var mask unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mask); err != nil {
		return nil, fmt.Errorf("processors of this process: %w", err)
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
