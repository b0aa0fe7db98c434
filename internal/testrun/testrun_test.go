package testrun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/redykv/redykv/internal/machine"
)

func TestMain(m *testing.M) {
	code := m.Run()
	Cleanup()
	os.Exit(code)
}

// trial is a test whose end the tests of this package see.
type trial struct {
	testing.TB
	said []string
}

func (t *trial) Helper()                   {}
func (t *trial) Name() string              { return "TestTrial" }
func (t *trial) Logf(f string, a ...any)   { t.said = append(t.said, fmt.Sprintf(f, a...)) }
func (t *trial) Fatalf(f string, a ...any) { t.end("failed: "+f, a...) }
func (t *trial) Skipf(f string, a ...any)  { t.end("skipped: "+f, a...) }

func (t *trial) end(format string, args ...any) {
	t.Logf(format, args...)
	runtime.Goexit()
}

// try returns what a test says.
func try(do func(t *trial)) string {
	t, done := new(trial), make(chan struct{})
	go func() {
		defer close(done)
		do(t)
	}()
	<-done
	return strings.Join(t.said, "\n")
}

// TestSeed has each origin of a seed.
func TestSeed(t *testing.T) {
	for _, c := range []struct {
		name, kind, env string
		flag, want      uint64
		says            string
	}{
		{"by itself", "", "", 0, 1, "seed 1: REDYKV_TEST_SEED=1 go test -run '^TestTrial$' repeats it"},
		{"a flag", "soak", "7", 8, 8, "seed 8: "},
		{"the environment", "soak", "7", 0, 7, "seed 7: "},
		{"malformed", "", "x", 0, 0, "failed: REDYKV_TEST_SEED: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(KindEnv, c.kind)
			t.Setenv(SeedEnv, c.env)
			var got uint64
			said := try(func(t *trial) { got = Seed(t, c.flag) })
			if got != c.want || !strings.HasPrefix(said, c.says) {
				t.Errorf("the seed is %d: %s", got, said)
			}
		})
	}
	t.Setenv(KindEnv, "soak")
	t.Setenv(SeedEnv, "")
	if a, b := Seed(t, 0), Seed(t, 0); a == b {
		t.Errorf("two seeds of a soak are %d", a)
	}
}

// TestSoak has tests that differ in a soak.
func TestSoak(t *testing.T) {
	for kind, want := range map[string]string{
		"":     "skipped: it is long: REDYKV_TEST=soak go test -run '^TestTrial$'",
		"soak": "10 rounds",
	} {
		t.Setenv(KindEnv, kind)
		said := try(func(t *trial) {
			SkipUnlessSoak(t, "it is long")
			t.Logf("%d rounds", Scale(1, 10))
		})
		if said != want {
			t.Errorf("%q: %s", kind, said)
		}
	}
	t.Setenv(KindEnv, "")
	if n := Scale(1, 10); n != 1 {
		t.Errorf("%d rounds", n)
	}
}

// TestWrong has the verdict on data, and an error with it.
func TestWrong(t *testing.T) {
	const want = "failed: WRONG DATA: key 5 is lost"
	err := fmt.Errorf("%w key %d is lost", ErrWrong, 5)
	for _, said := range []string{try(func(t *trial) { Wrong(t, "key %d is lost", 5) }), try(func(t *trial) { t.Fatalf("%v", err) })} {
		if said != want {
			t.Errorf("%q, want %q", said, want)
		}
	}
}

// TestProgram builds redykv once, or takes the one that is named.
func TestProgram(t *testing.T) {
	env := ProgramEnv
	if machine.RaceDetector {
		env = RaceProgramEnv
	}
	if named := os.Getenv(env); named != "" {
		if got := Program(t); got != named {
			t.Errorf("%s instead of %s", got, named)
		}
		return
	}
	path := Program(t)
	if _, err := os.Stat(path); err != nil || Program(t) != path {
		t.Errorf("%s, and then %s: %v", path, Program(t), err)
	}
	Cleanup()
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", path, err)
	}
}
