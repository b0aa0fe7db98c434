package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// bad are the packages of a module, each with what the gate's summary must say of it, and what it
// must not: regular expressions.
var bad = []struct {
	pkg, code string
	want, not []string
}{
	{pkg: "kinds", code: `
func TestFails(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("it fails always") }) }
func TestFlaky(t *testing.T) { if run(t) == 1 { t.Error("it fails once") } }
func TestOften(t *testing.T) { if run(t)%2 == 1 { t.Error("it fails half of the time") } }
func TestWrong(t *testing.T) { if run(t) == 1 { t.Fatal("WRONG DATA: a write is lost") } }
func TestPasses(t *testing.T) {}
func TestSkips(t *testing.T) { t.Skip("skipped") }
func TestSlash(t *testing.T) { t.Run("a/b", func(t *testing.T) { t.Error("fails") }) }
func TestParallel(t *testing.T) {
	for _, name := range []string{"a", "b", "c"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "b" { t.Error("b fails") }
		})
	}
}`,
		want: []string{
			`FAIL  kinds TestFails: failed in F F F F\n      again: go test ./kinds -count=1 -run '\^TestFails\$'`,
			`FLAKE kinds TestFlaky for the first time \(F P P\)`,
			`FAIL  kinds TestOften: failed in F P F P F`,
			`FAIL  kinds TestWrong: wrong data`,
			`FAIL  kinds TestParallel/b: failed in F F F F`,
			`FAIL  kinds TestSlash: failed in F F F F`,
		},
		not: []string{`FAIL  kinds TestFlaky`, `(FAIL|FLAKE)  ?kinds TestParallel/(a|c)`, `(FAIL|FLAKE)  ?kinds Test(Passes|Skips)`}},
	{pkg: "panics", code: `
func TestBefore(t *testing.T) {}
func TestPanics(t *testing.T) { panic("it panics") }
func TestBehind(t *testing.T) { t.Error("what is behind a panic runs too") }`,
		want: []string{`FAIL  panics TestPanics: failed in F F F F`, `FAIL  panics TestBehind: failed in F F F F`},
		not:  []string{`(FAIL|FLAKE)  ?panics TestBefore`}},
	{pkg: "background", code: `
func TestBackground(t *testing.T) { go func() { panic("in a goroutine") }(); time.Sleep(time.Hour) }`,
		want: []string{`FAIL  background TestBackground: failed in F F F F`}},
	{pkg: "scripts", code: `
func TestScripts(t *testing.T) {
	for _, name := range []string{"a", "b", "c"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "a" && run(t) == 1 { panic("once") }
			if name != "a" { t.Error("fails") }
		})
	}
}`,
		want: []string{
			`FLAKE scripts TestScripts/a `, `FAIL  scripts TestScripts/b: failed in F F F F`,
			`FAIL  scripts TestScripts/c: failed in F F F F`,
		}},
	{pkg: "hangs", code: `
func TestHangs(t *testing.T) { select {} }`,
		want: []string{`FAIL  hangs TestHangs: failed in F F F F`}},
	{pkg: "exits", code: `
func TestExits(t *testing.T) { os.Exit(3) }`,
		want: []string{`FAIL  exits TestExits: failed in F F F F`}},
	{pkg: "leaks", code: `
func TestMain(m *testing.M) { m.Run(); println("a goroutine is left"); os.Exit(1) }
func TestPasses(t *testing.T) {}`,
		want: []string{`(?s)FAIL  leaks \(package\): last lines.*a goroutine is left.*FAIL  leaks \(package\): failed in F F F F`}},
	{pkg: "hlog", code: `
func TestRace(t *testing.T) {
	n, done := 0, make(chan bool)
	go func() { n++; close(done) }()
	n++
	<-done
	_ = n
}`,
		want: []string{`FAIL  hlog \[race\] TestRace: data race`}, not: []string{`FAIL  hlog TestRace`}},
}

const around = `
import (
	"os"
	"testing"
	"time"
)

var _ = time.Now

// run counts the runs of a test.
func run(t *testing.T) int {
	file := os.Getenv("GATE_TEST_DIR") + "/" + t.Name()[:8]
	text, _ := os.ReadFile(file)
	if err := os.WriteFile(file, append(text, 'x'), 0o600); err != nil { t.Fatal(err) }
	return len(text) + 1
}
`

// gateOn runs the gate on a module of bad packages.
func gateOn(t *testing.T, packages map[string]string, race bool, soak time.Duration) (summary string, passed bool) {
	t.Helper()
	t.Setenv("GATE_TEST_DIR", t.TempDir())
	summary, passed, err := gateUntil(t, context.Background(), packages, race, soak)
	if err != nil {
		t.Fatal(err)
	}
	return summary, passed
}

// gateUntil is gateOn with a context, and with a directory that GATE_TEST_DIR names.
func gateUntil(t *testing.T, ctx context.Context, packages map[string]string, race bool, soak time.Duration) (summary string, passed bool, err error) {
	t.Helper()
	dir := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module "+strings.TrimSuffix(module, "/")+"\n\ngo 1.26\n")
	for pkg, code := range packages {
		write(pkg+"/x_test.go", "package x\n"+around+code+"\n")
	}
	t.Chdir(dir)
	var out bytes.Buffer
	g := gate{started: time.Now(), out: &out, race: race, limit: 3 * time.Second, budget: time.Hour, soak: soak}
	passed, err = g.run(ctx, "", nil)
	log := out.String()
	for mark, why := range faults { // those of the bad packages are none of this one
		log = strings.ReplaceAll(log, mark, "("+why+")")
	}
	t.Log(log)
	_, summary, _ = strings.Cut(out.String(), "\n== summary: ")
	return summary, passed, err
}

// Each kind of failure is refused, or named as a flake, and the last lines say which it is.
func TestGate(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("the race detector needs gcc")
	}
	packages := map[string]string{}
	for _, c := range bad {
		packages[c.pkg] = c.code
	}
	summary, passed := gateOn(t, packages, true, 0)
	if passed {
		t.Error("the gate passes")
	}
	for _, c := range bad {
		for _, want := range c.want {
			if !regexp.MustCompile(want).MatchString(summary) {
				t.Errorf("%s: the summary has no %q", c.pkg, want)
			}
		}
		for _, not := range c.not {
			if regexp.MustCompile(not).MatchString(summary) {
				t.Errorf("%s: the summary has %q", c.pkg, not)
			}
		}
	}
}

func TestGatePasses(t *testing.T) {
	flaky := `func TestFlaky(t *testing.T) { if run(t) == 1 { t.Error("it fails once") } }`
	summary, passed := gateOn(t, map[string]string{"fine": `func TestFine(t *testing.T) {}`, "flaky": flaky}, false, 0)
	if !passed || !strings.HasSuffix(summary, "\n1 passed, 0 failed, 0 skipped\n") {
		t.Errorf("passed %v: %s", passed, summary)
	}
}

func TestGateRefusesABrokenBuild(t *testing.T) {
	summary, passed := gateOn(t, map[string]string{"broken": `func TestBroken(t *testing.T) { undefined() }`}, false, 0)
	if passed || !strings.Contains(summary, "FAIL  build") || !strings.HasSuffix(summary, "\n0 passed, 1 failed, 0 skipped\n") {
		t.Errorf("passed %v: %s", passed, summary)
	}
}

func TestGateRefusesManyFlakes(t *testing.T) {
	packages := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		packages[name] = `func Test` + strings.ToUpper(name) + `Flaky(t *testing.T) { if run(t) == 1 { t.Error("it fails once") } }`
	}
	summary, passed := gateOn(t, packages, false, 0)
	if passed || !strings.Contains(summary, "6 flakes are more than 5") || !strings.HasSuffix(summary, "\n0 passed, 6 failed, 0 skipped\n") {
		t.Errorf("passed %v: %s", passed, summary)
	}
}

// A soak goes on until its time is up, has everything under the race detector, repeats no failure, and
// says its seed.
func TestGateSoaks(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("the race detector needs gcc")
	}
	summary, passed := gateOn(t, map[string]string{"soaks": `
func TestSoaks(t *testing.T) { if os.Getenv("REDYKV_TEST") != "soak" { t.Error("this is no soak") } }
func TestFails(t *testing.T) {
	t.Log("REDYKV_TEST_SEED=7 repeats it")
	for i := range 10 { t.Log(i) }
	t.Error("fails")
}`}, true, time.Second)
	want := regexp.MustCompile(`(?s)FAIL  soaks \[race\] TestFails: last lines\n[^\n]+ REDYKV_TEST_SEED=7 repeats it\n.*FAIL  soaks \[race\] TestFails: failed in F\n +again: go test ./soaks -count=1 -race -run`)
	if passed || !want.MatchString(summary) || strings.Contains(summary, "this is no soak") {
		t.Errorf("passed %v: %s", passed, summary)
	}
}

// A soak that is ended says what it found, and blames no test that it cut off.
func TestGateEndsASoak(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("the race detector needs gcc")
	}
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	t.Setenv("GATE_TEST_DIR", dir)
	go func() {
		defer cancel()
		for range 10 * 60 * 20 {
			if _, err := os.Stat(dir + "/TestWait"); err == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	summary, passed, err := gateUntil(t, ctx, map[string]string{"soaks": `
func TestFails(t *testing.T) { t.Error("fails") }
func TestWaits(t *testing.T) { run(t); time.Sleep(time.Hour) }`}, true, time.Hour)
	if passed || !errors.Is(err, context.Canceled) {
		t.Errorf("passed %v, %v", passed, err)
	}
	if !strings.Contains(summary, "FAIL  soaks [race] TestFails: failed in F\n") || !strings.HasSuffix(summary, "\n0 passed, 1 failed, 0 skipped\n") {
		t.Error(summary)
	}
}

func TestCutOff(t *testing.T) {
	for name, tc := range map[string]struct {
		tests map[string]*test
		of    string
		want  bool
	}{
		"it waited":            {map[string]*test{"TestA": {}}, "TestA", true},
		"a subtest waited":     {map[string]*test{"TestA": {}, "TestA/a": {}, "TestA/b": {result: "pass"}}, "TestA", true},
		"a subtest had failed": {map[string]*test{"TestA": {}, "TestA/a": {}, "TestA/b": {result: "fail"}}, "TestA", false},
		"it had failed":        {map[string]*test{"TestA": {result: "fail"}, "TestB": {}}, "TestA", false},
		"wrong data":           {map[string]*test{"TestA": {output: []string{"x_test.go:1: WRONG DATA: 1\n"}}}, "TestA", false},
		"no test ran":          {map[string]*test{}, "", true},
		"a race of no test":    {map[string]*test{"TestA": {output: []string{"WARNING: DATA RACE\n"}}}, "", false},
	} {
		r := &result{tests: tc.tests, order: slices.Collect(maps.Keys(tc.tests))}
		if got := r.cutOff(tc.of); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Workers get one heavy job at a time, in the order of the list, and each job once.
func TestTurns(t *testing.T) {
	var jobs []job
	for _, pkg := range []string{"redytier", "hlog", "kv/resp", "cmd/redykv", "device"} {
		jobs = append(jobs, job{pkg: module + pkg})
	}
	raced := func(pkg string) job { return job{pkg: module + pkg, race: true} }
	stages := plan(append([]job{{pkg: "script", script: true}, raced("hlog"), raced("kv"), raced("redytier")}, jobs...))
	turns := turns{left: stages[0]}
	next := func(want string) (ended func()) {
		t.Helper()
		j, ended, ok := turns.next()
		if got := j.name(); ok && got != want || ok != (want != "") {
			t.Errorf("%q, want %q", got, want)
		}
		return ended
	}
	programEnded := next("cmd/redykv")
	next("kv/resp")()
	programEnded()
	redytierEnded := next("redytier")
	next("device")
	next("hlog")
	next("kv [race]")
	next("hlog [race]")
	next("")
	redytierEnded()
	next("redytier [race]")()
	next("")
	if scripts := stages[1]; len(scripts.heavy) != 1 || len(scripts.light) != 0 {
		t.Errorf("the other stage is %+v", scripts)
	}
}
