package main

import (
	"os"
	"os/exec"
	"syscall"
)

// prepare makes a command's processes a group of their own.
func prepare(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// kill ends a command's group of processes.
func kill(c *exec.Cmd) {
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // it may have ended just now
}

// canIsolate reports whether tests can run in namespaces of their own.
func canIsolate() bool {
	return os.Geteuid() == 0 && exec.Command(unshare[0], append(unshare[1:], "true")...).Run() == nil
}
