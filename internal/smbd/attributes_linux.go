package smbd

import "syscall"

// attributes are those of the program's process, which leads a group and is told to end
// when this process does, however it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
