package etcdtest

import "syscall"

// attributes makes the kernel kill the program when this process ends, even by a kill.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
