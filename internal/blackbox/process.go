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
	// Ready are the groups of the expression that a line of its output matched.
	Ready []string

	cmd    *exec.Cmd
	log    tail
	signal sync.Mutex    // no signal is sent to a process that was waited for
	ended  chan struct{} // closed at its end; then err holds
	err    error
}

// starter is the thread that starts processes. They are killed when it ends, that is, when
// this process does.
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

// Start starts a program and, unless ready is nil, waits until a line of its standard output
// matches. A program that ends before is an *EndedError.
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
		err := p.cmd.Wait() // outlives it if it has children that have its output
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

// read looks for the line that says that the process is ready, and reads on.
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
			default: // nobody waits
			}
			_, _ = io.Copy(io.Discard, out) // to its end
			return
		}
		line = line[:0]
	}
}

// Signal sends a signal, if the process runs.
func (p *Process) Signal(s syscall.Signal) {
	p.signal.Lock()
	defer p.signal.Unlock()
	select {
	case <-p.ended:
	default:
		_ = p.cmd.Process.Signal(s) // it may have ended by itself
	}
}

// Ended says whether the process runs no more.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Kill ends the process at once.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Stop has the process end by itself. That it takes longer than patience, or that its
// exit code is not 0, is an error.
func (p *Process) Stop(patience time.Duration) error {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Signal(syscall.SIGQUIT) // the stacks of its goroutines are part of the error
		<-p.ended
		return fmt.Errorf("%s does not end in %v\n%s", p.cmd, patience, p.log.String())
	}
	if p.err != nil {
		return &EndedError{p.cmd.Args, p.err, p.log.String()}
	}
	return p.Crashed()
}

// Crashed says whether the process, if it has ended, did so by a fault of its own.
func (p *Process) Crashed() error { return Crashed(p.log.String()) }

// Log is the end of what the process wrote to standard error.
func (p *Process) Log() string { return p.log.String() }

// EndedError is that a program ended that should not have, or not in this way.
type EndedError struct {
	Argv []string
	Err  error  // nil: its exit code is 0
	Log  string // the end of its standard error
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("%s ended: %v\n%s", strings.Join(e.Argv, " "), e.Err, e.Log)
}

func (e *EndedError) Unwrap() error { return e.Err }

// crash matches what Go's runtime says of a program that it ends, and the race detector.
var crash = regexp.MustCompile(`(?m)^(panic: |fatal error: |SIG[A-Z]+: |unexpected fault address|WARNING: DATA RACE)`)

// Crashed is an error if a program's standard error has a panic.
func Crashed(log string) error {
	if at := crash.FindStringIndex(log); at != nil {
		return fmt.Errorf("the program crashed:\n%s", log[at[0]:])
	}
	return nil
}

// Run runs a program to its end. An exit code other than 0 is an *EndedError.
func Run(ctx context.Context, argv ...string) (out string, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), &EndedError{argv, errors.Join(err, ctx.Err()), stderr.String()}
	}
	return stdout.String(), nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex // guards what follows
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
