//go:build !linux

package etcdtest

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
