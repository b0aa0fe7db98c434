package redytier

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/server"
)

const childVariable = "REDYKV_REDYTIER_CHILD"

// serveChild makes a test binary that startChild started a cache server until its standard
// input ends; otherwise it returns at once.
func serveChild() {
	transport := os.Getenv(childVariable)
	if transport == "" {
		return
	}
	s, err := server.New(server.Options{ControlSecret: clusterSecret, Memory: 1 << 20, Cores: 2, Transport: transport, Logger: slog.New(slog.DiscardHandler)})
	var l net.Listener
	if err == nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err == nil {
		go func() { _ = http.Serve(l, s.Handler()) }()
		fmt.Printf("http://%s\n", l.Addr())
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startChild starts a cache server in its own process. It ends with the test.
func startChild(t *testing.T, transport string) (process *os.Process, controlURL string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env, cmd.Stderr = append(os.Environ(), childVariable+"="+transport), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = cmd.StdinPipe(); err != nil { // ends with this process at the latest
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process, strings.TrimSpace(line)
}

// stop stops a child process permanently, and returns when none of its threads runs.
func stop(t *testing.T, p *os.Process) {
	t.Helper()
	err := p.Signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if err == nil {
		_, err = syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
	}
	if err != nil || !status.Stopped() {
		t.Fatalf("%v, status %#x", err, status)
	}
}

// lateBy is how much later than configured a busy machine may notice an event in a test.
const lateBy = 30 * time.Second

// runningAnswers is a ServerTimeout within which a process answers that is not stopped.
const runningAnswers = 5 * time.Second

// soon returns a context that ends long after timeout.
func soon(t *testing.T, timeout time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout+testrun.Patience(lateBy))
	t.Cleanup(cancel)
	return ctx
}

// A server process is stopped while its kernel still answers. Pending requests of its sessions
// end with ErrRegionUnavailable, whether their owners poll or sleep, and its memory is lost.
// Only requests that do not need the process continue.
func TestServerProcessStops(t *testing.T) {
	testrun.SkipUnlessAll(t, "it waits for silences")
	const timeout = runningAnswers
	for _, transport := range []string{"tcp", "shm"} {
		for what, configuration := range map[string]Configuration{"one-sided": configurations[0], "batches": configurations[2]} {
			t.Run(transport+" "+what, func(t *testing.T) {
				t.Parallel() // it mostly waits
				c := newCluster(t, transport, 1, 1<<20)
				c.refuse = func(*managerv1.ReallocateRequest) error { return errors.New("no VM is left") }
				var process *os.Process
				process, c.vms[0].ControlUrl = startChild(t, transport)
				lost := make(chan Event, 4)
				cache := c.create(t, Config{
					Capacity: 1 << 16, RegionSize: 1 << 14, Configuration: configuration, ServerTimeout: timeout,
					OnEvent: func(e Event) { lost <- e },
				})
				polls, sleeps := newPump(t, cache, 8), newPump(t, cache, 8)
				defer polls.close()
				defer sleeps.close()
				polls.connect()
				sleeps.insist([]byte("before"), 0)

				stop(t, process)
				answers := transport == "shm" && what == "one-sided"
				ctx := soon(t, timeout)
				ended := 0
				end := func(c device.Completion) {
					if ended++; (c.Err == nil) != answers || !answers && !errors.Is(c.Err, ErrRegionUnavailable) {
						t.Errorf("of a process that is stopped: %+v", c)
					}
				}
				for range 4 {
					polls.do(true, make([]byte, 100), 100, end)
					sleeps.do(false, make([]byte, 100), 0, end)
				}
				if err := errors.Join(polls.s.Submit(), sleeps.s.Submit()); err != nil {
					t.Fatal(err)
				}
				var done [8]device.Completion
				for ; len(polls.pending) > 0 && ctx.Err() == nil; time.Sleep(100 * time.Microsecond) {
					for _, c := range done[:polls.s.Poll(done[:])] {
						delete(polls.pending, c.Tag)
						end(c)
					}
				}
				for len(sleeps.pending) > 0 && ctx.Err() == nil {
					if err := sleeps.s.Wait(ctx); err != nil {
						t.Fatal(err)
					}
					sleeps.poll()
				}
				if ended != 8 {
					t.Fatalf("%d of 8 requests have ended, %v after the process was stopped", ended, timeout+testrun.Patience(lateBy))
				}
				if answers {
					return
				}
				select { // the process does not accept another connection
				case e := <-lost:
					if e.Kind != VMLost || e.To != cache.Capacity() {
						t.Errorf("%+v", e)
					}
				case <-soon(t, reconnectTimeout).Done():
					t.Fatal("the server was not found to be lost")
				}
			})
		}
	}
}

// The process that a region moves to is stopped during the copy. The move fails, the region
// stays at its place, and its writes continue.
func TestTargetProcessStops(t *testing.T) {
	testrun.SkipUnlessAll(t, "it waits for silences")
	const timeout = runningAnswers
	for _, transport := range []string{"tcp", "shm"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()                            // it mostly waits
			c := newCluster(t, transport, 2, 1<<20) // a cache of one region is on the second VM
			var process *os.Process
			process, c.vms[0].ControlUrl = startChild(t, transport)
			cache := c.create(t, Config{
				Capacity: 1 << 16, RegionSize: 1 << 16, Configuration: configurations[0], ServerTimeout: timeout,
				Migration: Migration{BytesPerSecond: 1 << 10},
			})
			p := newPump(t, cache, 4)
			defer p.close()
			moved := make(chan error, 1)
			go func() { moved <- cache.Migrate(t.Context(), "vm-1") }()
			testrun.Until(t, "the region is copied", func() bool { return cache.Regions()[0].State == Copying })
			stop(t, process)
			p.do(true, []byte("held"), 0, func(c device.Completion) {
				if c.Err != nil {
					t.Errorf("a write that was held: %+v", c)
				}
			})
			ctx := soon(t, timeout)
			for len(p.pending) > 0 && ctx.Err() == nil {
				p.poll()
			}
			select {
			case err := <-moved:
				if !errors.Is(err, errNoAnswer) || !errors.Is(err, ErrRegionUnavailable) {
					t.Errorf("Migrate: %v", err)
				}
			case <-soon(t, controlTimeout).Done():
				t.Fatal("Migrate goes on")
			}
			if r := cache.Regions()[0]; r.VM != "vm-1" || r.State != Stable {
				t.Errorf("%+v", r)
			}
		})
	}
}
