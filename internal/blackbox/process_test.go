package blackbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a running program.
type Process struct {
	// Ready holds the submatches of the output line that matched.
	Ready []string

	cmd    *exec.Cmd
	log    tail
	signal sync.Mutex    // held while signalling, so that no signal is sent to a process that was waited for
	ended  chan struct{} // closed when the process has ended; then err is set
	err    error
}

// starter is the thread that starts processes. They are killed when it ends, which is when
// this process ends.
var starter = sync.OnceValue(func() chan func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

// Start starts a program and, unless ready is nil, waits until a line of its standard
// output matches. If the program ends before, the error is an *EndedError.
func Start(ctx context.Context, ready *regexp.Regexp, argv ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	p.cmd.SysProcAttr = attributes()
	out, in := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = in, &p.log
	started := make(chan error)
	starter() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", strings.Join(argv, " "), err)
	}
	matched := make(chan []string, 1)
	if ready == nil {
		ready = regexp.MustCompile("")
		matched <- nil
	}
	go p.read(out, ready, matched)
	go func() {
		err := p.cmd.Wait() // also waits for children that share its output
		p.signal.Lock()
		p.err = err
		close(p.ended)
		p.signal.Unlock()
		_ = in.Close() // cannot fail
	}()
	select {
	case p.Ready = <-matched:
		return p, nil
	case <-p.ended:
		return nil, &EndedError{argv, p.err, p.log.String()}
	case <-ctx.Done():
		p.Kill()
		return nil, fmt.Errorf("%s does not get ready: %w\n%s", strings.Join(argv, " "), context.Cause(ctx), p.log.String())
	}
}

// read looks for the line that matches ready, and then discards the rest of the output.
func (p *Process) read(out io.Reader, ready *regexp.Regexp, matched chan<- []string) {
	var line []byte
	b := make([]byte, 1)
	for {
		if _, err := out.Read(b); err != nil {
			return
		}
		if b[0] != '\n' {
			line = append(line, b[0])
			continue
		}
		if m := ready.FindStringSubmatch(string(line)); m != nil {
			select {
			case matched <- m[1:]:
			default: // Start no longer waits
			}
			_, _ = io.Copy(io.Discard, out)
			return
		}
		line = line[:0]
	}
}

// Signal sends a signal if the process is running.
func (p *Process) Signal(s syscall.Signal) {
	p.signal.Lock()
	defer p.signal.Unlock()
	select {
	case <-p.ended:
	default:
		_ = p.cmd.Process.Signal(s) // it may have just ended
	}
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Kill kills the process and waits for its end.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Stop sends SIGTERM and waits for the process. It returns an error if that takes longer
// than patience, or if the exit code is not 0.
func (p *Process) Stop(patience time.Duration) error {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Signal(syscall.SIGQUIT) // adds the stacks of its goroutines to the error
		<-p.ended
		return fmt.Errorf("%s does not end in %v\n%s", p.cmd, patience, p.log.String())
	}
	if p.err != nil {
		return &EndedError{p.cmd.Args, p.err, p.log.String()}
	}
	return p.Crashed()
}

// Crashed returns an error if the process has crashed.
func (p *Process) Crashed() error { return Crashed(p.log.String()) }

// Log returns the end of the process's standard error.
func (p *Process) Log() string { return p.log.String() }

// EndedError reports that a program ended unexpectedly.
type EndedError struct {
	Argv []string
	Err  error  // nil if the exit code is 0
	Log  string // the end of its standard error
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("%s ended: %v\n%s", strings.Join(e.Argv, " "), e.Err, e.Log)
}

func (e *EndedError) Unwrap() error { return e.Err }

// crash matches the output of Go's runtime for a crash, and of the race detector.
var crash = regexp.MustCompile(`(?m)^(panic: |fatal error: |SIG[A-Z]+: |unexpected fault address|WARNING: DATA RACE)`)

// Crashed returns an error if a program's standard error shows a crash.
func Crashed(log string) error {
	if at := crash.FindStringIndex(log); at != nil {
		return fmt.Errorf("the program crashed:\n%s", log[at[0]:])
	}
	return nil
}

// Run runs a program until it ends. If its exit code is not 0, the error is an *EndedError.
func Run(ctx context.Context, argv ...string) (out string, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), &EndedError{argv, errors.Join(err, ctx.Err()), stderr.String()}
	}
	return stdout.String(), nil
}

// tail keeps the end of its input.
type tail struct {
	mu   sync.Mutex // guards kept
	kept []byte
}

const tailSize = 64 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	if len(t.kept) > 2*tailSize {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-tailSize:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
