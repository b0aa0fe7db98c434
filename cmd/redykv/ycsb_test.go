package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redykv/redykv/ycsb"
	"github.com/redykv/redykv/ycsb/goycsb"
)

// cacheServers returns the process ids of this process's cache servers.
func cacheServers(t *testing.T) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, stat := range stats {
		dir := filepath.Dir(stat)
		text, err := os.ReadFile(stat)
		line, lineErr := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || lineErr != nil {
			continue // it has ended
		}
		// pid (name) state ppid …; the name may contain any characters.
		after := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(after) < 2 || after[1] != strconv.Itoa(os.Getpid()) || !bytes.Contains(line, []byte("cacheserver")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// during calls a function once, at a stage's first progress.
type during struct {
	stage string
	do    func()
	once  sync.Once
	now   bool
}

func (d *during) Begin(stage string, _ int64) { d.now = stage == d.stage }
func (d *during) End()                        { d.now = false }
func (d *during) Add(int64) {
	if d.now {
		d.once.Do(d.do)
	}
}

// TestCompareSurvivesItsCacheServer kills the cache server during a run or during loading.
// Reads continue from the SSD without errors, the results have a note, and another cache
// server replaces it.
func TestCompareSurvivesItsCacheServer(t *testing.T) {
	for _, tc := range []struct {
		stage, note string // of the first run
	}{
		{"load redy", ""},
		{"redy/uniform/2", "redy lost after "},
	} {
		t.Run(tc.stage, func(t *testing.T) {
			results := compareAndKill(t, tc.stage)
			for _, r := range results {
				if r.Errors > 0 || r.Ops == 0 {
					t.Errorf("%s: %d of %d reads went wrong (%s)", r.Experiment, r.Errors, r.Ops, r.FirstError)
				}
				if r.HitRedy == 0 && !strings.Contains(r.Note, "redy was lost before this run") {
					t.Errorf("%s: no read came from Redy, and the note is %q", r.Experiment, r.Note)
				}
			}
			if r := results[0]; !strings.Contains(r.Note, tc.note) || tc.note != "" && r.HitSSD == 0 {
				t.Errorf("%s: the note is %q, want %q; %v came from the SSD", r.Experiment, r.Note, tc.note, r.HitSSD)
			}
			if left := cacheServers(t); len(left) > 0 {
				t.Errorf("cache servers %v are left", left)
			}
		})
	}
}

// compareAndKill compares two runs on Redy, and kills the cache server at a stage.
func compareAndKill(t *testing.T, stage string) []ycsb.Result {
	redykv, err := exec.LookPath("redykv")
	if err != nil {
		t.Fatal(err)
	}
	const records = 50_000
	log := ycsb.LogBytes(records, 8)
	c := ycsb.Comparison{
		Shape: ycsb.Shape{
			Records: records, ValueSize: 8, Net: "rdma", Depth: 64,
			Memory: ycsb.DefaultMemory(log), Cache: ycsb.DefaultCache(log),
			CacheServer: []string{redykv, "cacheserver"},
		},
		Devices:       []ycsb.Device{ycsb.Redy},
		Distributions: ycsb.Distributions,
		Threads:       []int{2},
		Duration:      2 * time.Second, // a refill yields to reads
		Dir:           t.TempDir(),
	}
	results, err := ycsb.Compare(t.Context(), c, &during{stage: stage, do: func() {
		servers := cacheServers(t)
		if len(servers) != 1 {
			t.Errorf("%d cache servers, want 1", len(servers))
		}
		for _, pid := range servers {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// TestCompareIsInterrupted checks that a signal ends a comparison and removes its processes
// and files.
func TestCompareIsInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), scriptTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "redykv", "ycsb", "compare", "--devices", "ssd", "--records", "5000",
		"--duration", "1h", "--dir", filepath.Join(dir, "work"))
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for poll := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-poll.C {
		if made, err := filepath.Glob(filepath.Join(dir, "work", "redykv-compare-*", "ssd")); err == nil && len(made) > 0 {
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || stderr.String() != "redykv: interrupted\n" {
		t.Errorf("%v: %q", err, stderr.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("in %s: %v, %v", dir, left, err)
	}
}

// TestCompareFailures checks which results make the comparison fail.
func TestCompareFailures(t *testing.T) {
	const killed = "killed at its memory limit of 64MiB after 2 rounds"
	for _, tc := range []struct {
		result ycsb.Result
		want   string // "": no error
	}{
		{ycsb.Result{Device: ycsb.SSD}, ""},
		{ycsb.Result{Device: "pebble", Experiment: "pebble/uniform/1x1", Killed: killed}, ""},
		{ycsb.Result{Device: ycsb.SSD, Experiment: "ssd/uniform/1", Killed: killed}, "ssd/uniform/1: " + killed},
		{ycsb.Result{Device: "bbolt", Experiment: "bbolt/uniform/1x1", Errors: 2, FirstError: "gone", Killed: killed}, "bbolt/uniform/1x1: 2 operations failed or returned a wrong value; the first: gone"},
	} {
		if err := failures([]ycsb.Result{{Device: ycsb.Redy}, tc.result}); (err == nil) != (tc.want == "") || err != nil && err.Error() != tc.want {
			t.Errorf("%+v: %v, want %q", tc.result, err, tc.want)
		}
	}
}

// TestSuiteFailures checks that operations which failed, of any store, make the suite fail.
func TestSuiteFailures(t *testing.T) {
	rows := []goycsb.SuiteRow{{Workload: "workloada", Store: "redykv"}, {Workload: "workloadb", Store: "pebble"}}
	if err := suiteFailures(rows); err != nil {
		t.Error(err)
	}
	rows[1].Failed = 2
	if err := suiteFailures(rows); err == nil || err.Error() != "workloadb: 2 operations of pebble failed" {
		t.Error(err)
	}
}
