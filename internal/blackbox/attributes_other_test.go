//go:build !linux

package blackbox

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
