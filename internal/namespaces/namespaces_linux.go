package namespaces

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Rerun runs this program again, with the same arguments and a variable, NAME=VALUE, added
// to its environment, in new namespaces of the types in flags (CLONE_NEWNS and so on). It
// returns the exit code. An error says that the program could not be started.
func Rerun(flags uintptr, variable string) (code int, err error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), variable)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: flags, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // the code is -1 after a signal
	}
	return 0, err
}
