package redytier

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/model"
)

var (
	schedulesFor    = flag.Duration("schedules.for", testrun.For(20*time.Minute), "how long TestSchedules plays seeds; 0: a number of them")
	schedulesSeed   = flag.Uint64("schedules.seed", 0, "TestSchedules's first seed; 0: as testrun.Seed")
	schedulesScript = flag.String("schedules.script", "", "play the schedule in this file")
)

// scheduleModels returns the models of a schedule's manager.
func scheduleModels(t *testing.T) []*model.Model { return []*model.Model{sloModel(t, "mem")} }

// TestSchedules plays random schedules of everything that changes a cache, beside faults of all
// that it depends on, on virtual time: see scheduleStep. Sessions and a handle of the callback
// API write and read meanwhile, and are compared with a byte array: a read returns the last
// written bytes, or what a failed write may have written; where memory was lost, an error, and
// then zeros or the copy. Then all faults end. The whole cache must answer again, on memory
// that its manager and the servers know, and after its end nothing may be left.
//
// With -schedules.for, seeds are played also after one that fails. -schedules.script plays the script
// of a failed run over and over: goroutines interleave differently each time.
func TestSchedules(t *testing.T) {
	runs, seed, end, goOn := testrun.Raced(testrun.Scale(8, 24, 24), 8), testrun.Seed(t, *schedulesSeed), time.Now().Add(24*time.Hour), false
	if *schedulesFor > 0 {
		runs, end, goOn = 1<<30, time.Now().Add(*schedulesFor), true
	}
	next := func(i int) scheduleScript { return newScheduleScript(seed + uint64(i)) }
	if *schedulesScript != "" {
		text, err := os.ReadFile(*schedulesScript)
		if err != nil {
			t.Fatal(err)
		}
		script, err := parseSchedule(string(text))
		if err != nil {
			t.Fatal(err)
		}
		next = func(int) scheduleScript { return script }
	}
	played := 0
	for i := 0; i < runs && time.Now().Before(end) && (goOn || !t.Failed()); i++ {
		script := next(i)
		failures, events := bubble(t, script)
		if len(failures) > 0 {
			report(t, script, failures, events)
		}
		played++
	}
	t.Logf("%d schedules from seed %d on", played, seed)
}

// TestFailedSchedules plays the scripts in testdata/schedules, which found faults.
func TestFailedSchedules(t *testing.T) {
	files, err := filepath.Glob("testdata/schedules/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script, err := parseSchedule(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if failures, events := bubble(t, script); len(failures) > 0 {
			t.Errorf("%s:\n%s\nwhat happened:\n%s", file, strings.Join(failures, "\n"), strings.Join(events, "\n"))
		}
	}
}

// bubble plays a script on virtual time.
func bubble(t *testing.T, script scheduleScript) (failures, events []string) {
	stuck := time.AfterFunc(watchdog, func() {
		buf := make([]byte, 1<<22)
		fmt.Fprintf(os.Stderr, "a schedule stands still:\n%s\n%s\n", script, buf[:runtime.Stack(buf, true)])
		os.Exit(2)
	})
	defer stuck.Stop()
	defer func() {
		if r := recover(); r != nil {
			failures = append(failures, fmt.Sprintf("panic: %v", r))
		}
	}()
	synctest.Test(t, func(t *testing.T) { failures, events = playSchedule(t, script) })
	return failures, events
}

// watchdog bounds the real time of a run, whose goroutines may wait for a mutex for ever.
const watchdog = 2 * time.Minute

// report shortens the script of a failed run, and prints it with what happened.
func report(t *testing.T, script scheduleScript, failures, events []string) {
	t.Helper()
	t.Logf("%d steps fail:\n%s\n%s", len(script.steps), script, strings.Join(failures, "\n"))
	for size := max(1, len(script.steps)/2); size > 0; size /= 2 {
		for at := 0; at+size <= len(script.steps); {
			less := scheduleScript{setup: script.setup}
			less.steps = append(append(less.steps, script.steps[:at]...), script.steps[at+size:]...)
			if at+size < len(script.steps) { // the rest happens at the same time
				for _, gone := range script.steps[at : at+size] {
					less.steps[at].after += gone.after
				}
			}
			fails := false
			for range shrinkTries {
				if f, e := bubble(t, less); len(f) > 0 {
					failures, events, fails = f, e, true
					break
				}
			}
			if fails {
				script = less
			} else {
				at += size
			}
		}
	}
	t.Errorf("a schedule fails:\n%s\n%s\nsetup %+v\nwhat happened:\n%s", script, strings.Join(failures, "\n"), script.setup, strings.Join(events, "\n"))
}

// shrinkTries is how often a shorter script is played before it counts as one that does not
// fail: goroutines interleave differently each time.
const shrinkTries = 3

// A printed script is read as it was.
func TestScheduleScripts(t *testing.T) {
	for seed := range uint64(50) {
		want := newScheduleScript(seed + 1).String()
		if s, err := parseSchedule(want); err != nil || s.String() != want {
			t.Errorf("%v: read as\n%swant\n%s", err, s, want)
		}
	}
	for _, bad := range []string{"", "seed", "seed x", "seed 1\nkill", "seed 1\n1 kill 2 1s", "seed 1\n1s kill x 1s", "seed 1\n1s kill 1 x"} {
		if s, err := parseSchedule(bad); err == nil {
			t.Errorf("%q is read as %v", bad, s)
		}
	}
}
