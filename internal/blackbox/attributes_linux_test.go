package blackbox

import "syscall"

// attributes makes the kernel kill the process when this one ends.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
