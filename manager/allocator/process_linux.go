package allocator

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// makeDetached creates the directory for files of processes that outlive this one.
func makeDetached(state string) error { return os.MkdirAll(processDir(state), 0o700) }

// dieWithParent makes the kernel kill cmd's process when the thread that started it ends.
// An interrupt from the terminal does not reach the process: the parent may need its cache
// servers to finish.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// detach lets a process outlive this one, and protects it from the terminal's interrupts.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// handle is a process that this one may not have started. When it has ended, its pid may be
// used again; the descriptor still refers to it.
type handle struct {
	stamp processStamp
	fd    int

	mu     sync.Mutex // guards closed, and fd against use after its close
	closed bool
}

// openProcess returns a handle of a process, or os.ErrProcessDone.
func openProcess(pid int) (*handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	stamp, err := stampOf(pid)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("process %d: %w", pid, err), unix.Close(fd))
	}
	return &handle{stamp: stamp, fd: fd}, nil
}

func stampOf(pid int) (processStamp, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return processStamp{}, err
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		err = os.ErrProcessDone
	}
	if err != nil {
		return processStamp{}, err
	}
	// The second field is the name in parentheses, which may contain any character.
	const start = 22 - 3
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) <= start {
		return processStamp{}, fmt.Errorf("process status: want more than %d fields, have %.200q", start, stat)
	}
	ticks, err := strconv.ParseUint(fields[start], 10, 64)
	return processStamp{PID: pid, Start: ticks, Boot: strings.TrimSpace(string(boot))}, err
}

// kill does nothing to a process that has ended.
func (h *handle) kill() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	if err := unix.PidfdSendSignal(h.fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// wait returns true when the process has ended, or false when l.begin is called first.
func (h *handle) wait(l *leaving) bool {
	fds := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}, {Fd: int32(l.reader.Fd())}}
	for {
		n, err := unix.Poll(fds, -1)
		switch {
		case n > 0 && fds[0].Revents != 0:
			return true
		case n > 0, err != nil && !errors.Is(err, unix.EINTR):
			return false
		}
	}
}

// close is called after wait.
func (h *handle) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	_ = unix.Close(h.fd)
}

// leaving ends all waits for processes: begin closes one end of a pipe, whose other end the
// waits poll.
type leaving struct {
	reader, writer *os.File
}

func newLeaving() (*leaving, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &leaving{reader, writer}, nil
}

func (l *leaving) begin() error { return l.writer.Close() }

// end is called when all waits have ended.
func (l *leaving) end() error { return l.reader.Close() }
