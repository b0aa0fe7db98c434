package blackbox

import "syscall"

// attributes are those of a process that is killed when this one ends, however it does.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
