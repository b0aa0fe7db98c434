package manager

import (
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// MachineMemory returns the memory of this machine in bytes.
func MachineMemory() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("memory of this machine: sysinfo: %w", err)
	}
	return uint64(info.Totalram) * uint64(info.Unit), nil //nolint:unconvert // 32 bits wide on some machines
}

// dieWithParent has the kernel kill cmd's process when the thread that started
// it ends, and not before: an interrupt from the terminal is for the parent,
// which may still need its cache servers to finish.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
