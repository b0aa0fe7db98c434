//go:build !linux

package blackbox

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }

func withOwnMounts(tests func() int) (code int) { return tests() }
