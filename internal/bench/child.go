package bench

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// grace is the time that the other process has to end before it is killed.
const grace = 20 * time.Second

// Child is the other side of a measurement: this program in a second process. It must end
// when its standard input does, so that it never outlives its parent.
type Child struct {
	// Ready is the rest of the line that announced that the process is ready.
	Ready string

	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan error // holds the result of Wait
}

// StartChild runs this executable with args and waits until a line of its standard output
// begins with prefix. Its standard error goes to stderr.
func StartChild(ctx context.Context, stderr io.Writer, prefix string, args ...string) (*Child, error) {
	return StartTalking(ctx, stderr, prefix, nil, nil, args...)
}

// maxLine is the most bytes of a line that is read of a process: an hour of samples.
const maxLine = 16 << 20

// StartTalking is StartChild for a process that goes on talking: each later line of its
// standard output goes to lines, which is closed when the process has ended. The caller
// receives them all. The process has env in its environment, in addition to this one's.
func StartTalking(ctx context.Context, stderr io.Writer, prefix string, env []string, lines chan<- string, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("path of this program: %w", err)
	}
	c := &Child{cmd: exec.Command(self, args...), ended: make(chan error, 1)}
	c.cmd.Stderr = stderr
	c.cmd.Env = append(os.Environ(), env...)
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the other side: %w", err)
	}
	ready := make(chan string, 1)
	go func() {
		defer close(ready)
		scanner := bufio.NewScanner(out)
		scanner.Buffer(nil, maxLine)
		for found := false; scanner.Scan(); {
			if rest, ok := strings.CutPrefix(scanner.Text(), prefix); ok && !found {
				ready <- strings.TrimSpace(rest)
				found = true
			} else if found && lines != nil {
				lines <- scanner.Text()
			}
		}
		err := scanner.Err()
		if err != nil { // nothing more is read
			c.Hangup()
			_ = out.Close()
		}
		c.ended <- errors.Join(err, c.cmd.Wait()) // after the reads: Wait closes the pipe
		if lines != nil {
			close(lines)
		}
	}()
	select {
	case rest, ok := <-ready:
		if !ok {
			return nil, fmt.Errorf("the other side ended before it was ready: %w", cmp.Or(<-c.ended, io.EOF))
		}
		c.Ready = rest
		return c, nil
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), c.Close())
	}
}

// Write writes to the process's standard input.
func (c *Child) Write(p []byte) (int, error) { return c.stdin.Write(p) }

// Hangup closes the process's standard input, at which it ends.
func (c *Child) Hangup() { _ = c.stdin.Close() } // fails if the process has ended

// Close ends the process.
func (c *Child) Close() error {
	c.Hangup()
	select {
	case err := <-c.ended:
		return err
	case <-time.After(grace):
	}
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end the other side: %w", err)
	}
	return fmt.Errorf("the other side did not end by itself: %w", <-c.ended)
}

// PID is the number of the process.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Kill ends the process without warning, and waits until it has ended.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // fails if the process has ended
	c.ended <- <-c.ended     // for Close
}

// UntilEnd returns a context that ends with ctx or with input, which is the standard input
// of a Child.
func UntilEnd(ctx context.Context, input io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, input) // an error, too, means that the parent has gone
	}()
	return ctx
}
