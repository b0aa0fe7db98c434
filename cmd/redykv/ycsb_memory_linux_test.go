package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/ycsb"
)

// comparing returns the command of a short comparison of one device. It is that of the script
// tests, which starts itself as a store's process.
func comparing(t *testing.T, device string, flags ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), "redykv", append([]string{
		"ycsb", "compare", "--devices", device, "--value-size", "100", "--distributions", "uniform", "--threads", "2",
		"--duration", "50ms", "--warmup", "0s", "--json", "", "--report", "", "--dir", t.TempDir(),
	}, flags...)...)
}

func init() { programs["peak"] = peak }

// peak is a program that runs another, given by its path, name and arguments, and prints the
// peak of its memory in bytes. A new process counts its parent's memory as its own until it
// executes its program, so the parent of what is measured must be small: a test is not.
func peak() {
	cmd := exec.Command(os.Args[1])
	cmd.Args = os.Args[2:]
	out, err := cmd.CombinedOutput()
	if err != nil {
		fmt.Printf("%v\n%s", err, out)
		os.Exit(1)
	}
	fmt.Print(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10)
}

// TestComparisonTakesWhatItSays compares the estimate for the memory of a comparison with the
// process's peak.
func TestComparisonTakesWhatItSays(t *testing.T) {
	testrun.SkipUnlessSoak(t, "it loads millions of records")
	testrun.SkipRaced(t, "the race detector takes memory of its own")
	const records = 1_000_000
	program, err := os.Stat(os.Args[0]) // its mapped pages count for the process, but can be dropped
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range []ycsb.Device{ycsb.SSD, ycsb.Memory, "pebble"} {
		t.Run(string(device), func(t *testing.T) {
			shape := ycsb.Shape{Records: records, ValueSize: 100, Memory: ycsb.DefaultMemory(ycsb.LogBytes(records, 100)), Depth: ycsb.DefaultDepth}
			cmd := comparing(t, string(device), "--records", fmt.Sprint(records))
			out, err := exec.CommandContext(t.Context(), "peak", append([]string{cmd.Path}, cmd.Args...)...).Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			had, err := strconv.ParseInt(string(out), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			says := ycsb.Comparison{Shape: shape, Devices: []ycsb.Device{device}, Threads: []int{2}}.MemoryBytes()
			t.Logf("%v at most, %v as estimated", units.Size(had), units.Size(says))
			if had > says+program.Size() || had < says/3 {
				t.Errorf("had up to %v of memory, up to %v of the program included, estimated %v", units.Size(had), units.Size(program.Size()), units.Size(says))
			}
		})
	}
}

// controlGroup makes a control group with a memory limit, and returns its file of processes.
// It skips the test if it cannot.
func controlGroup(t *testing.T, limit int64) (procs string) {
	t.Helper()
	var reasons []error
	for _, version := range []struct{ root, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		dir, err := os.MkdirTemp(version.root, "redykv-test-")
		if err == nil {
			t.Cleanup(func() { _ = os.Remove(dir) }) // empty by then
			inner := filepath.Join(dir, "inner")     // the limit is on its parent
			if err = os.WriteFile(filepath.Join(dir, version.limit), fmt.Append(nil, limit), 0); err == nil {
				err = os.Mkdir(inner, 0o755)
			}
			if err == nil {
				t.Cleanup(func() { _ = os.Remove(inner) })
				return filepath.Join(inner, "cgroup.procs")
			}
		}
		reasons = append(reasons, err)
	}
	t.Skipf("no control group can be made here: %v", errors.Join(reasons...))
	return ""
}

// TestComparisonInAControlGroup checks that the limit of a parent control group refuses a
// large comparison, and that a smaller one runs.
func TestComparisonInAControlGroup(t *testing.T) {
	procs := controlGroup(t, 14<<30/10)
	run := func(device, records string) (string, error) {
		cmd := comparing(t, device, "--records", records)
		cmd.Args = append([]string{"bash", "-c", `echo $$ > "$0" && exec "$@"`, procs, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/bash"
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, device := range []string{"ssd", "pebble", "badger", "redy", "memory"} {
		out, err := run(device, "40000000")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "needs about ") || !strings.Contains(out, "this process may have 1.4GiB") {
			t.Errorf("%s: %v\n%s", device, err, out)
		}
	}
	if out, err := run("ssd", "20000"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
