package smbd

import "syscall"

// attributes makes the program's process the leader of a new group. The kernel terminates it
// when this process ends, even by a kill.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
