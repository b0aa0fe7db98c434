package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// mostFlakes is the number of flakes up to which a run passes: with more the change or the machine
// is at fault.
const mostFlakes = 5

type gate struct {
	started       time.Time
	race, isolate bool
	limit, budget time.Duration
	dir, program  string // of what is built; the redykv for tests
	script        string
	watch         watch

	mu              sync.Mutex // guards what follows, and lines on out
	out             io.Writer
	passed, skipped int
	times           []timing // of packages
	stages          []timing
	failed, flakes  []*failure
}

// A timing is how long something took.
type timing struct {
	name string
	took time.Duration
}

// run builds and runs everything, prints the summary, and reports whether nothing failed.
func (g *gate) run(ctx context.Context, before string, patterns []string) (passed bool, err error) {
	if g.stages, err = readStages(before); err != nil {
		return false, err
	}
	if g.dir, err = os.MkdirTemp("", "redykv-gate-"); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(g.dir)) }()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go g.watch.run(ctx)
	if g.isolate = canIsolate(); !g.isolate {
		g.say("gate: packages run without namespaces of their own, which need root")
	}
	var jobs []job
	g.stage("build", func() { jobs, err = g.build(ctx, g.dir, patterns) })
	if err != nil {
		g.failed = append(g.failed, &failure{fault: err.Error(), runs: "F", job: job{pkg: "build"}})
		g.summary()
		return false, nil
	}
	if g.script != "" {
		path, err := filepath.Abs(g.script)
		if err != nil {
			return false, err
		}
		jobs = append(jobs, job{pkg: g.script, dir: ".", binary: path, script: true})
	}
	for _, s := range plan(jobs) {
		if len(s.jobs) > 0 {
			g.stage(s.name, func() { g.perform(ctx, s) })
		}
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	g.summary()
	return len(g.failed) == 0 && len(g.flakes) <= mostFlakes, nil
}

// stage runs a function and notes how long it takes.
func (g *gate) stage(name string, do func()) {
	g.say("\n== gate: %s", name)
	began := time.Now()
	do()
	g.stages = append(g.stages, timing{name, time.Since(began)})
}

// perform runs the jobs of a stage, and then repeats what failed, alone.
func (g *gate) perform(ctx context.Context, s stage) {
	var failures []*failure
	var workers sync.WaitGroup
	jobs := make(chan job)
	for range s.wide {
		workers.Go(func() {
			for j := range jobs {
				began := time.Now()
				found := g.runs(ctx, j)
				g.report(j, time.Since(began), found)
				g.mu.Lock()
				failures = append(failures, found...)
				g.mu.Unlock()
			}
		})
	}
	for _, j := range s.jobs {
		jobs <- j
	}
	close(jobs)
	workers.Wait()
	for _, f := range failures {
		if g.again(ctx, f) {
			g.flakes = append(g.flakes, f)
			g.say("FLAKE %s  %s  (%s)", f.job.name(), f.test, f.runs)
		} else {
			g.failed = append(g.failed, f)
			g.say("FAIL  %s  %s  (%s)", f.job.name(), f.test, f.runs)
		}
	}
}

// count adds the tests of a run to the totals; what failed is counted when it is judged.
func (g *gate) count(j job, r *result) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range r.tests {
		switch t.result {
		case "pass":
			g.passed++
		case "skip":
			g.skipped++
		}
	}
}

// report prints a line for a package, and the output of what failed.
func (g *gate) report(j job, took time.Duration, failures []*failure) {
	g.mu.Lock()
	g.times = append(g.times, timing{j.name(), took})
	g.mu.Unlock()
	if len(failures) == 0 {
		g.say("ok    %-45s %6.1fs", j.name(), took.Seconds())
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "FAIL  %-45s %6.1fs", j.name(), took.Seconds())
	for _, f := range failures {
		fmt.Fprintf(&text, "\n--- FAIL: %s %s\n%s", f.job.name(), f.test, strings.Join(tail(f.lines, 300), ""))
	}
	g.say("%s", text.String())
}

// say prints a line.
func (g *gate) say(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fmt.Fprintf(g.out, format+"\n", args...)
}

// tail returns the last n lines.
func tail(lines []string, n int) []string { return lines[max(len(lines)-n, 0):] }

// readStages reads the times of stages before this program.
func readStages(file string) (stages []timing, err error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		name, seconds, ok := cutLast(strings.TrimSpace(line), " ")
		took, err := time.ParseDuration(seconds + "s")
		if !ok || err != nil {
			return nil, fmt.Errorf("%s: %q is not a stage and its seconds", file, line)
		}
		stages = append(stages, timing{name, took})
	}
	return stages, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// slowest returns the n longest times.
func slowest(times []timing, n int) []timing {
	times = slices.Clone(times)
	slices.SortFunc(times, func(a, b timing) int { return cmp.Compare(b.took, a.took) })
	return times[:min(n, len(times))]
}
