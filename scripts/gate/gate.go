package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// mostFlakes is the number of flakes up to which a run passes: with more the change or the machine
// is at fault.
const mostFlakes = 5

type gate struct {
	started       time.Time
	race, isolate bool
	limit, budget time.Duration
	soak          time.Duration // how long packages run over and over, all under the race detector; 0: no soak
	dir           string        // of what is built
	env           []string      // of tests
	script        string
	watch         watch

	mu              sync.Mutex // guards what follows, and lines on out
	out             io.Writer
	passed, skipped int
	times           []timing // of packages
	tests           []timing // of tests that are not part of others
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
	g.env = append(g.env, testrun.PatienceEnv+"=5")
	if g.soak > 0 {
		g.env = append(g.env, testrun.KindEnv+"="+testrun.SoakKind)
	} else {
		g.env = append(g.env, testrun.KindEnv+"="+testrun.AllKind)
	}
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
	if g.soak > 0 {
		g.soaks(ctx, jobs)
	} else {
		for _, s := range plan(jobs) {
			if len(s.heavy)+len(s.light) > 0 {
				g.stage(s.name, func() { g.perform(ctx, s) })
			}
		}
	}
	if err := ctx.Err(); err != nil {
		if g.soak > 0 { // what it found so far is found
			g.summary()
		}
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

// soaks runs jobs in a random order, each alone, over and over until the time is up. A failure is one,
// as each run has other seeds.
func (g *gate) soaks(ctx context.Context, jobs []job) {
	end := time.Now().Add(g.soak)
	for round := 1; time.Now().Before(end) && ctx.Err() == nil; round++ {
		rand.Shuffle(len(jobs), func(a, b int) { jobs[a], jobs[b] = jobs[b], jobs[a] })
		g.stage(fmt.Sprintf("round %d", round), func() {
			for _, j := range jobs {
				if time.Now().After(end) || ctx.Err() != nil {
					return
				}
				g.failed = append(g.failed, g.runs(ctx, j)...)
			}
		})
	}
}

// perform runs the jobs of a stage, and then repeats what failed, alone.
func (g *gate) perform(ctx context.Context, s stage) {
	var failures []*failure
	var workers sync.WaitGroup
	t := turns{left: s}
	for range wide {
		workers.Go(func() {
			for j, ended, ok := t.next(); ok; j, ended, ok = t.next() {
				found := g.runs(ctx, j)
				ended()
				g.mu.Lock()
				failures = append(failures, found...)
				g.mu.Unlock()
			}
		})
	}
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
	for name, t := range r.tests {
		if above(name) == "" && t.result != "" {
			g.tests = append(g.tests, timing{j.name() + " " + name, t.ended.Sub(t.began)})
		}
		switch t.result {
		case "pass":
			g.passed++
		case "skip":
			g.skipped++
		}
	}
}

// report prints a line for a package, with its time and how many processors it kept busy, and the
// output of what failed.
func (g *gate) report(j job, took, cpu time.Duration, failures []*failure, cutOff bool) {
	g.mu.Lock()
	g.times = append(g.times, timing{j.name(), took})
	g.mu.Unlock()
	line := fmt.Sprintf("%-45s %6.1f s  %4.1f processors", j.name(), took.Seconds(), cpu.Seconds()/took.Seconds())
	if len(failures) == 0 {
		word := "ok "
		if cutOff {
			word = "cut"
		}
		g.say("%s   %s", word, line)
		return
	}
	var text strings.Builder
	text.WriteString("FAIL  " + line)
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
