//go:build !linux

package smbd

import "syscall"

// attributes are those of the program's process, which leads a group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
