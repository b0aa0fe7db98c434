package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/redykv/redykv/internal/testrun"
)

// build links the test binaries of packages and the programs that tests need into dir.
func (g *gate) build(ctx context.Context, dir string, patterns []string) (jobs []job, err error) {
	list, err := exec.CommandContext(ctx, "go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		pkg, in, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		jobs = append(jobs, job{pkg: pkg, dir: in})
	}
	plain := len(jobs)
	if g.soak > 0 {
		plain = 0
		for i := range jobs {
			jobs[i].race = true
		}
	}
	for _, j := range jobs[:plain] {
		if g.race && listed(raced, j.pkg) {
			j.race, j.tests = true, racedTests[strings.TrimPrefix(j.pkg, module)]
			jobs = append(jobs, j)
		}
	}
	if err := g.link(ctx, filepath.Join(dir, "plain"), jobs[:plain]); err != nil {
		return nil, err
	}
	race := []string{"-race"}
	if g.soak == 0 {
		race = append(race, "-tags", "noclouds") // the chosen tests of cmd/redykv need no driver of a cloud
	}
	if err := g.link(ctx, filepath.Join(dir, "race"), jobs[plain:], race...); err != nil {
		return nil, err
	}
	if err := g.command(ctx, "go", "build", "-o", filepath.Join(dir, "test2json"), "cmd/test2json"); err != nil {
		return nil, err
	}
	if _, err := os.Stat("cmd/redykv"); errors.Is(err, os.ErrNotExist) { // in the module of a test
		return jobs, nil
	}
	name, args := testrun.ProgramEnv, []string{"build", "-tags", "noclouds"}
	if g.soak > 0 {
		name, args = testrun.RaceProgramEnv, append(args, "-race")
	}
	program := filepath.Join(dir, "redykv")
	g.env = append(g.env, name+"="+program)
	return jobs, g.command(ctx, "go", append(args, "-o", program, "./cmd/redykv")...)
}

// link links the test binaries of jobs, and notes where they are. One call of go links any number
// of packages, except that their last elements must differ, as the binaries are named by them.
func (g *gate) link(ctx context.Context, dir string, jobs []job, flags ...string) error {
	if len(jobs) == 0 {
		return nil
	}
	var calls [][]string
	times := map[string]int{}
	for i := range jobs {
		base := path.Base(jobs[i].pkg)
		call := times[base]
		times[base]++
		if call == len(calls) {
			calls = append(calls, nil)
		}
		calls[call] = append(calls[call], jobs[i].pkg)
		jobs[i].binary = filepath.Join(dir, fmt.Sprint(call), base+".test")
	}
	for i, pkgs := range calls {
		into := filepath.Join(dir, fmt.Sprint(i)) + string(filepath.Separator)
		if err := os.MkdirAll(into, 0o755); err != nil {
			return err
		}
		args := append([]string{"test", "-c", "-ldflags=-s -w", "-o", into}, flags...)
		if err := g.command(ctx, "go", append(args, pkgs...)...); err != nil {
			return err
		}
	}
	return nil
}

// command runs a program whose output is the gate's.
func (g *gate) command(ctx context.Context, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Stdout, c.Stderr = g.out, g.out
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args[:min(2, len(args))], " "), err)
	}
	return nil
}
