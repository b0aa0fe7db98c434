package testrun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

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
func (t *trial) Errorf(f string, a ...any) { t.Logf("error: "+f, a...) }
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

// TestBytes: other bytes have the mark of wrong data, and an error does not.
func TestBytes(t *testing.T) {
	for _, c := range []struct {
		got, want string
		err       error
		says      string
	}{
		{"same", "same", nil, ""},
		{"", "abc", errors.New("no disk"), "error: block 3: no disk"},
		{"abX", "abc", nil, `error: WRONG DATA: block 3: 3 bytes, want 3, of which 2 are equal; then "X", want "c"`},
		{"ab", "abc", nil, `error: WRONG DATA: block 3: 2 bytes, want 3, of which 2 are equal; then "", want "c"`},
	} {
		says := try(func(t *trial) { Bytes([]byte(c.got), c.err).Want(t, []byte(c.want), "block %d", 3) })
		if says != c.says {
			t.Errorf("%q, %v for %q: %s", c.got, c.err, c.want, says)
		}
	}
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

// TestKinds has tests that differ between kinds of runs.
func TestKinds(t *testing.T) {
	skipped := func(kind string) string {
		return "skipped: it is long: REDYKV_TEST=" + kind + " go test -run '^TestTrial$'"
	}
	for kind, want := range map[string]struct {
		all, soak string
		rounds    int
		long      time.Duration
	}{
		"":       {skipped(AllKind), skipped(SoakKind), 1, 0},
		AllKind:  {"", skipped(SoakKind), 2, 0},
		SoakKind: {"", "", 3, time.Hour},
	} {
		t.Setenv(KindEnv, kind)
		if said := try(func(t *trial) { SkipUnlessAll(t, "it is long") }); said != want.all {
			t.Errorf("%q: %q, want %q", kind, said, want.all)
		}
		if said := try(func(t *trial) { SkipUnlessSoak(t, "it is long") }); said != want.soak {
			t.Errorf("%q: %q, want %q", kind, said, want.soak)
		}
		if n, long := Scale(1, 2, 3), For(time.Hour); n != want.rounds || long != want.long {
			t.Errorf("%q: %d rounds, for %v", kind, n, long)
		}
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
