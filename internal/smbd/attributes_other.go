//go:build !linux

package smbd

import "syscall"

// attributes makes the program's process the leader of a new group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// stopped does not know about processes.
func stopped(int) bool { return true }
