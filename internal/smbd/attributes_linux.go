package smbd

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// attributes makes the program's process the leader of a new group. The kernel terminates it
// when this process ends, even by a kill.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// stopped reports whether all processes of a group have stopped or ended.
func stopped(group int) bool {
	threads, _ := filepath.Glob("/proc/[0-9]*/task/*/stat") // the pattern is valid
	return !slices.ContainsFunc(threads, func(path string) bool {
		stat, err := os.ReadFile(path) // the thread may have ended
		if err != nil {
			return false
		}
		_, after, _ := bytes.Cut(stat, []byte(") "))
		fields := bytes.Fields(after) // the state, the parent and the group
		return len(fields) > 2 && string(fields[2]) == strconv.Itoa(group) && !bytes.ContainsAny(fields[0], "TtZX")
	})
}
