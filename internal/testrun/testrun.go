// Package testrun says how the tests run: those that are quick; all of them, as for each change, where
// they are repeatable; or a soak, where they choose other seeds each time and go on for longer.
package testrun

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/machine"
)

// Environment variables.
const (
	// KindEnv is AllKind or SoakKind; otherwise tests that take long, or start engines, are skipped.
	KindEnv = "REDYKV_TEST"
	// SeedEnv is the seed of all tests that choose by one.
	SeedEnv = "REDYKV_TEST_SEED"
	// ProgramEnv is the path of a redykv that was built before.
	ProgramEnv = "REDYKV_TEST_PROGRAM"
	// RaceProgramEnv is the path of one that was built with the race detector.
	RaceProgramEnv = "REDYKV_TEST_PROGRAM_RACE"
)

// Values of KindEnv.
const (
	AllKind  = "all"
	SoakKind = "soak"
)

// Soak reports whether the tests run as a soak.
func Soak() bool { return os.Getenv(KindEnv) == SoakKind }

// All reports whether all tests run, as for each change or in a soak.
func All() bool { return Soak() || os.Getenv(KindEnv) == AllKind }

// SkipUnlessAll skips a test that takes long. why is what makes it so.
func SkipUnlessAll(t testing.TB, why string) {
	t.Helper()
	if !All() {
		t.Skipf("%s: %s=%s go test -run '^%s$'", why, KindEnv, AllKind, t.Name())
	}
}

// SkipUnlessSoak skips a test that is for a soak only. why is what makes it so.
func SkipUnlessSoak(t testing.TB, why string) {
	t.Helper()
	if !Soak() {
		t.Skipf("%s: %s=%s go test -run '^%s$'", why, KindEnv, SoakKind, t.Name())
	}
}

// Scale returns how much a test does: the numbers are for a quick run, for each change and for a soak.
func Scale(quick, all, soak int) int {
	switch {
	case Soak():
		return soak
	case All():
		return all
	}
	return quick
}

// Raced returns how much a test does without the race detector, and with it, which is ten times slower.
func Raced(plain, raced int) int {
	if machine.RaceDetector {
		return raced
	}
	return plain
}

// SkipRaced skips a test under the race detector.
func SkipRaced(t testing.TB, why string) {
	t.Helper()
	if machine.RaceDetector {
		t.Skip("with the race detector: " + why)
	}
}

// For returns how long a test that can go on for any time does so in a soak, and 0 otherwise.
func For(soak time.Duration) time.Duration {
	if Soak() {
		return soak
	}
	return 0
}

// Seed returns the seed of a test, and logs it. It is the value of the test's flag unless that is
// 0, or that of SeedEnv, or else 1. In a soak it is a random number instead of 1.
func Seed(t testing.TB, flag uint64) uint64 {
	t.Helper()
	seed := flag
	if text := os.Getenv(SeedEnv); seed == 0 && text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", SeedEnv, err)
		}
	}
	if seed == 0 {
		seed = 1
		if Soak() {
			seed += rand.Uint64() >> 32
		}
	}
	t.Logf("seed %d: %s=%[1]d go test -run '^%[3]s$' repeats it", seed, SeedEnv, t.Name())
	return seed
}

// WrongMark begins the message of a test that found wrong data.
const WrongMark = "WRONG DATA:"

// Failer is a testing.TB or a *rapid.T.
type Failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Wrong ends a test with the verdict that the product lost, tore or invented data. Such a test is
// never run again to see whether it passes then.
func Wrong(t Failer, format string, args ...any) {
	t.Helper()
	t.Fatalf(WrongMark+" "+format, args...)
}

// Read is what a read had: bytes, or an error.
type Read struct {
	got []byte
	err error
}

// Bytes is the result of a call, to compare: Bytes(read()).Want(t, want, "what").
func Bytes(got []byte, err error) Read { return Read{got, err} }

// Want fails a test, from any goroutine, if the read failed or has other bytes than want: these with
// the verdict of Wrong. The text says what was read.
func (r Read) Want(t Failer, want []byte, format string, args ...any) {
	t.Helper()
	what := fmt.Sprintf(format, args...)
	switch {
	case r.err != nil:
		t.Errorf("%s: %v", what, r.err)
	case !bytes.Equal(r.got, want):
		t.Errorf(WrongMark+" %s: %s", what, difference(r.got, want))
	}
}

// difference says where two strings of bytes differ first.
func difference(got, want []byte) string {
	n := min(len(got), len(want))
	at := 0
	for at < n && got[at] == want[at] {
		at++
	}
	brief := func(b []byte) []byte { return b[at:min(at+16, len(b))] }
	return fmt.Sprintf("%d bytes, want %d, of which %d are equal; then %q, want %q", len(got), len(want), at, brief(got), brief(want))
}

// ErrWrong is wrapped by errors with the verdict of Wrong. Their text has WrongMark, so a test may
// end with them in any way.
var ErrWrong = errors.New(WrongMark) //nolint:staticcheck // it begins a message

// built is the directory of a program that this process built.
var built string

// Program returns the path of redykv, without the drivers of clouds. It has the race detector if
// the test has it. It is the one that ProgramEnv or RaceProgramEnv names; else it is built by the
// first call, and Cleanup removes it.
func Program(t testing.TB) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var program = sync.OnceValues(func() (string, error) {
	env, args := ProgramEnv, []string{"build", "-tags", "noclouds"}
	if machine.RaceDetector {
		env, args = RaceProgramEnv, append(args, "-race")
	}
	if path := os.Getenv(env); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "redykv-program-")
	if err != nil {
		return "", err
	}
	built = dir
	path := filepath.Join(dir, "redykv")
	cmd := exec.Command("go", append(args, "-o", path, "github.com/redykv/redykv/cmd/redykv")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return path, nil
})

// Cleanup removes what Program built. A TestMain calls it after the tests.
func Cleanup() {
	if built != "" {
		_ = os.RemoveAll(built) // the system cleans up what is left
	}
}
