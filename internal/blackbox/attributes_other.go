//go:build !linux

package blackbox

import "syscall"

// attributes are those of any process.
func attributes() *syscall.SysProcAttr { return nil }
