package main

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// known are the flakes that were seen before, a line each: DATE PACKAGE TEST.
//
//go:embed flakes
var known string

// summary prints the last lines of the gate.
func (g *gate) summary() {
	now := time.Now()
	longest, n := g.watch.longest(g.started, now)
	still := "the machine did not stand still"
	if n > 0 {
		still = fmt.Sprintf("the machine stood still %d times, for %.1f s at %s", n, longest.long.Seconds(), longest.at.Format(time.TimeOnly))
	}
	g.say("\n== summary: %s, %s", now.Sub(g.started).Round(time.Second), still)
	g.say("stages: %s", list(g.stages))
	g.say("slowest packages: %s", list(slowest(g.times, 10)))
	g.say("slowest tests: %s", list(slowest(g.tests, 10)))
	for _, f := range g.flakes {
		line := fmt.Sprintf("%s %s", f.job.name(), orPackage(f.test))
		first, times := seen(line)
		switch times {
		case 0:
			line += " for the first time"
		default:
			line += fmt.Sprintf(" for the %dth time since %s", times+1, first)
		}
		g.say("FLAKE %s (%s)%s", line, f.runs, g.stood(f))
		g.say("      add to scripts/gate/flakes: %s %s %s", now.Format(time.DateOnly), f.job.name(), orPackage(f.test))
	}
	for _, f := range g.failed {
		g.say("FAIL  %s %s: last lines", f.job.name(), orPackage(f.test))
		for _, line := range telling(f.lines) {
			g.say("      %s", strings.TrimRight(line, "\n"))
		}
	}
	for _, f := range g.failed {
		why := f.fault
		if why == "" {
			why = "failed in " + f.runs
		}
		g.say("FAIL  %s %s: %s%s", f.job.name(), orPackage(f.test), why, g.stood(f))
		if f.job.dir != "" {
			g.say("      again: %s", f.command())
		}
	}
	if len(g.flakes) > mostFlakes {
		g.say("FAIL  %d flakes are more than %d: the change or the machine is at fault", len(g.flakes), mostFlakes)
	}
	failed := len(g.failed)
	if failed == 0 && len(g.flakes) > mostFlakes {
		failed = len(g.flakes)
	}
	g.say("%d passed, %d failed, %d skipped", g.passed, failed, g.skipped)
}

// telling returns the lines of a failure that say most: its seed, and those from a panic or a fault on,
// or else the last ones.
func telling(lines []string) []string {
	const most = 10
	from := max(len(lines)-most, 0)
	var seeds []string
	for i, line := range lines {
		if strings.HasPrefix(line, "panic: ") || fault(lines[i:i+1]) != "" {
			from = i
			break
		}
		if i < from && strings.Contains(line, testrun.SeedEnv+"=") {
			seeds = append(seeds, line)
		}
	}
	return append(tail(seeds, 1), lines[from:min(from+most, len(lines))]...)
}

// command is what repeats a failure.
func (f *failure) command() string {
	if f.job.script {
		return f.job.pkg
	}
	command := "go test ./" + strings.TrimPrefix(f.job.pkg, module) + " -count=1"
	if f.job.race {
		command += " -race"
	}
	if f.test != "" {
		command += " -run '" + pattern(f.test) + "'"
	}
	return command
}

// stood says how long the machine stood still while a failed test ran.
func (g *gate) stood(f *failure) string {
	if longest, n := g.watch.longest(f.began, f.ended); n > 0 {
		return fmt.Sprintf("; the machine stood still for %.1f s meanwhile", longest.long.Seconds())
	}
	return ""
}

// seen returns when a flake was first seen before, and how often.
func seen(name string) (first string, times int) {
	for line := range strings.Lines(known) {
		date, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(what+" ", name+" ") {
			if times == 0 {
				first = date
			}
			times++
		}
	}
	return first, times
}

func orPackage(test string) string {
	if test == "" {
		return "(package)"
	}
	return test
}

func list(times []timing) string {
	var all []string
	for _, t := range times {
		all = append(all, fmt.Sprintf("%s %.0f s", t.name, t.took.Seconds()))
	}
	return strings.Join(all, ", ")
}
