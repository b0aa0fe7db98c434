package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A failure is a test that failed, or a package that did without a failed test.
type failure struct {
	job   job
	test  string // what runs again; empty: the package
	fault string // why it is not repeated, such as "data race"
	runs  string // the first run and its repetitions: F failed, P passed
	lines []string
	began time.Time
	ended time.Time
}

// Failures with these marks in their output are faults whenever they appear.
var faults = map[string]string{
	"WARNING: DATA RACE":            "data race",
	"race detected during":          "data race",
	"fatal error: concurrent map":   "data race",
	"WRONG DATA:":                   "wrong data",
	"gate: killed:":                 "killed",
	"flag provided but not defined": "build",
}

// attempts is how often a binary whose run was cut off is run for the tests that it has left.
const attempts = 4

// runs runs a job's binary and reports on it; after a panic or a time-out it runs it for the tests that are left.
func (g *gate) runs(ctx context.Context, j job) (failures []*failure) {
	limit := g.longest(j)
	began, cpu := time.Now(), time.Duration(0)
	defer func() { g.report(j, time.Since(began), cpu, failures, ctx.Err() != nil) }()
	args := []string{}
	if j.tests != "" {
		args = append(args, "-test.run="+j.tests)
	}
	var done []string
	for attempt := 0; ; attempt++ {
		began := time.Now()
		r := g.execute(ctx, j, limit, append(args, skip(done)...)...)
		g.count(j, r)
		cpu += r.cpu
		blamed := r.blamed()
		for _, name := range blamed {
			if ctx.Err() != nil && r.cutOff(name) {
				continue
			}
			f := &failure{job: j, test: name, runs: "F", lines: r.all(name), began: began, ended: time.Now()}
			if t := r.tests[name]; t != nil {
				f.began = t.began
			}
			f.fault = fault(f.lines)
			failures = append(failures, f)
			if name != "" {
				done = append(done, name)
			}
		}
		if !r.crashed || blamed[0] == "" || ctx.Err() != nil {
			return failures
		}
		if attempt == attempts-1 {
			return append(failures, &failure{job: j, runs: "F", fault: "cut off too often: not all tests ran", lines: r.all(""), began: began, ended: time.Now()})
		}
		for _, name := range r.order {
			if r.ended(name) && (above(name) == "" || !r.ended(above(name))) {
				done = append(done, name)
			}
		}
	}
}

// longest is the time after which a job's binary counts as hanging.
func (g *gate) longest(j job) time.Duration {
	switch {
	case g.soak > 0:
		return max(g.soak, time.Hour)
	case j.race:
		return 3 * g.limit
	case j.script, listed(heavy, j.pkg):
		return 2 * g.limit
	}
	return g.limit
}

// blamed returns the tests that have to run again: those that failed, those that ran when a run
// was cut off, or "", the package, if it failed without either.
func (r *result) blamed() (names []string) {
	if !r.failed {
		return nil
	}
	panicked := false
	blame := func(name string) {
		// Only parallel subtests are independent of those beside them. A name may have a slash of its own.
		for above(name) != "" && (r.tests[name] == nil || !r.tests[name].parallel) {
			name = above(name)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range r.order {
		if t := r.tests[name]; t.result == "fail" && !r.below(name, "fail") {
			blame(name)
			panicked = panicked || slices.ContainsFunc(t.output, func(line string) bool { return strings.HasPrefix(line, "panic: ") })
		}
	}
	if r.crashed && !panicked {
		for _, name := range r.order {
			if t := r.tests[name]; t.result == "" && !t.waits && !r.below(name, "") {
				blame(name)
			}
		}
	}
	if names == nil {
		return []string{""}
	}
	return names
}

// below reports whether a subtest of a test has a result, and does not wait for its turn.
func (r *result) below(name, result string) bool {
	for other, t := range r.tests {
		if strings.HasPrefix(other, name+"/") && t.result == result && !t.waits {
			return true
		}
	}
	return false
}

// ended reports whether a test and all of its subtests have ended. A panic ends a test before its
// subtests.
func (r *result) ended(name string) bool {
	for other, t := range r.tests {
		if t.result == "" && (other == name || strings.HasPrefix(other, name+"/")) {
			return false
		}
	}
	return true
}

// cutOff reports whether a test, or "", the package, has failed for no reason but that it was cut off.
func (r *result) cutOff(name string) bool {
	return (name == "" || !r.ended(name) && !r.below(name, "fail")) && fault(r.all(name)) == ""
}

// again repeats a failed test, alone, until it has passed twice in a row or cannot do so within
// four runs, and reports whether it has.
func (g *gate) again(ctx context.Context, f *failure) (flake bool) {
	if f.fault != "" {
		return false
	}
	if time.Since(g.started) > g.budget {
		f.fault = "no time to repeat it"
		return false
	}
	args := []string{}
	if f.test != "" {
		args = append(args, "-test.run="+pattern(f.test))
	} else if f.job.tests != "" {
		args = append(args, "-test.run="+f.job.tests)
	}
	const most = 4
	for run, passes := 1, 0; passes+most-run+1 >= 2 && ctx.Err() == nil; run++ {
		r := g.execute(ctx, f.job, g.longest(f.job), args...)
		passed := !r.failed && (f.test == "" || r.tests[f.test] != nil && r.tests[f.test].result == "pass")
		if passes++; passed {
			f.runs += " P"
		} else {
			f.runs, passes = f.runs+" F", 0
			if f.fault = fault(r.all(f.test)); f.fault != "" {
				f.lines = r.all(f.test)
				return false
			}
		}
		if passes == 2 {
			return true
		}
	}
	return false
}

// fault returns why a failure with this output is a fault without a repetition, or "".
func fault(lines []string) string {
	for _, line := range lines {
		for mark, why := range faults {
			if strings.Contains(line, mark) {
				return why
			}
		}
	}
	return ""
}

// above returns the name of the test that a subtest is part of, or "".
func above(name string) string {
	return name[:max(strings.LastIndexByte(name, '/'), 0)]
}

// pattern returns the argument of -test.run for one test.
func pattern(name string) string {
	var levels []string
	for level := range strings.SplitSeq(name, "/") {
		levels = append(levels, "^"+regexp.QuoteMeta(level)+"$")
	}
	return strings.Join(levels, "/")
}

// skip returns the argument that skips tests.
func skip(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	var patterns []string
	for _, name := range names {
		patterns = append(patterns, pattern(name))
	}
	return []string{"-test.skip=" + strings.Join(patterns, "|")}
}
