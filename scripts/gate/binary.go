package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// isolated runs its arguments in namespaces of their own, with a loopback interface and without the
// named network namespaces of the machine. The shell stays as the first process, and reaps orphans.
const isolated = `ip link set lo up && mkdir -p /run/netns && mount -t tmpfs none /run/netns || exit 125; "$@"`

var unshare = []string{"unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "sh", "-c", isolated, "sh"}

// A test is what one run of a binary has shown of one test.
type test struct {
	result       string // "pass", "fail" or "skip"; empty: it did not end
	parallel     bool   // it called t.Parallel
	waits        bool   // for its turn among parallel ones
	began, ended time.Time
	output       []string
}

// A result is what one run of a binary has shown.
type result struct {
	tests   map[string]*test
	order   []string // the names of tests, as they began
	output  []string // what belongs to no test
	failed  bool     // the binary did not exit with 0
	crashed bool     // the run ended before its tests had: a panic, a time-out, an exit
	cpu     time.Duration
}

// execute runs a job's binary with a selection of tests and reads what it reports.
func (g *gate) execute(ctx context.Context, j job, limit time.Duration, args ...string) *result {
	argv := []string{j.binary}
	if !j.script {
		argv = append(argv, "-test.v=test2json", "-test.paniconexit0", "-test.count=1", "-test.timeout="+limit.String())
		argv = append(argv, args...)
		if g.isolate {
			argv = slices.Concat(unshare, argv)
		}
	}
	argv = slices.Concat([]string{filepath.Join(g.dir, "test2json"), "-t", "-p", j.pkg}, argv)
	// A binary that does not end by its own time-out is killed.
	ctx, cancel := context.WithTimeout(ctx, limit+time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Dir = j.dir
	c.Env = slices.Concat(os.Environ(), []string{"PWD=" + j.dir}, g.env)
	c.WaitDelay = 10 * time.Second
	prepare(c)
	r := &result{tests: map[string]*test{}, failed: true}
	events, err := c.StdoutPipe()
	if err == nil {
		c.Stderr = c.Stdout
		err = c.Start()
	}
	if err != nil {
		r.output = append(r.output, fmt.Sprintf("gate: %v\n", err))
		return r
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
			kill(c)
		case <-done:
		}
	}()
	r.read(events)
	close(done)
	err = c.Wait()
	r.cpu = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.failed = true
		r.output = append(r.output, fmt.Sprintf("gate: killed: %v\n", context.Cause(ctx)))
	}
	r.crashed = r.failed && !j.script && !slices.Contains(r.output, "PASS\n") && !slices.Contains(r.output, "FAIL\n")
	return r
}

// An event is a line of test2json.
type event struct {
	Time                 time.Time
	Action, Test, Output string
}

// read reads the events of test2json.
func (r *result) read(events io.Reader) {
	lines := bufio.NewReaderSize(events, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) != nil:
			r.output = append(r.output, string(line))
		case e.Test == "":
			switch e.Action {
			case "output":
				r.output = append(r.output, e.Output)
			case "pass", "skip":
				r.failed = false
			case "fail":
				r.failed = true
			}
		default:
			r.event(e)
		}
		if err != nil {
			return
		}
	}
}

func (r *result) event(e event) {
	t := r.tests[e.Test]
	if t == nil {
		t = &test{began: e.Time}
		r.tests[e.Test] = t
		r.order = append(r.order, e.Test)
	}
	switch e.Action {
	case "pause":
		t.parallel, t.waits = true, true
	case "cont":
		t.began, t.waits = e.Time, false
	case "output":
		t.output = append(t.output, e.Output)
	case "pass", "fail", "skip":
		t.result, t.ended = e.Action, e.Time
	}
}

// all returns the output of a test, its subtests and the tests that it is part of, in the order in
// which they began, and what belongs to no test; of the whole run if name is empty.
func (r *result) all(name string) (lines []string) {
	for _, other := range r.order {
		if name == "" || other == name || strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/") {
			lines = append(lines, r.tests[other].output...)
		}
	}
	return append(lines, r.output...)
}
