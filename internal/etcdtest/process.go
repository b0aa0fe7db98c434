package etcdtest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
)

// Process is one run of a server's program. The kernel kills it when this process ends.
type Process struct {
	Output bytes.Buffer  // standard output and error; not to be read before Ended
	Ended  chan struct{} // closed when the program has ended

	cmd *exec.Cmd
}

// Spawn starts a program.
func Spawn(program string, args ...string) (*Process, error) {
	return Run(exec.Command(program, args...))
}

// Run starts a command. What it prints goes to its Stdout as well, if that is set.
func Run(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, Ended: make(chan struct{})}
	var output io.Writer = &p.Output
	if cmd.Stdout != nil {
		output = io.MultiWriter(&p.Output, cmd.Stdout)
	}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = attributes()
	started := make(chan error)
	go func() {
		// Pdeathsig takes effect when the thread that started the program ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if started <- err; err == nil {
			_ = p.cmd.Wait()
			close(p.Ended)
		}
	}()
	return p, <-started
}

// Signal sends a signal to the program, which may have ended.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// stopped reports whether no thread of the program runs, where /proc tells.
func (p *Process) stopped() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid)) // the pattern is valid
	return !slices.ContainsFunc(threads, func(path string) bool {
		stat, err := os.ReadFile(path) // the thread may have ended
		_, state, _ := bytes.Cut(stat, []byte(") "))
		return err == nil && !bytes.HasPrefix(state, []byte("T"))
	})
}

// ExitCode returns the program's exit code, after Ended; -1: a signal killed it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Kill kills the program and waits for its end.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.Ended
}
