package testrun

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// PatienceEnv is the factor by which tests wait longer for what must happen, as on a busy machine.
const PatienceEnv = "REDYKV_TEST_PATIENCE"

// Patience returns how long a test waits for what takes at most d on an idle machine: d times
// PatienceEnv. It is for bounds that only end a test that hangs.
func Patience(d time.Duration) time.Duration {
	if factor, err := strconv.ParseFloat(os.Getenv(PatienceEnv), 64); err == nil && factor > 0 {
		return time.Duration(float64(d) * factor)
	}
	return d
}

// Bound is how long Until waits, before Patience.
const Bound = 2 * time.Minute

// Until waits until holds returns true. It fails the test after Patience(Bound), and names what it
// has waited for. It calls holds rarely, so that what is waited for has the processor.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	UntilNil(t, func() error {
		if holds() {
			return nil
		}
		return errors.New(what)
	})
}

// UntilNil is Until for a function whose error says what is missing.
func UntilNil(t testing.TB, missing func() error) {
	t.Helper()
	end := time.Now().Add(Patience(Bound))
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		err := missing()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %v", Patience(Bound), err)
		}
		time.Sleep(pause)
	}
}

// Main runs the tests of a package, and then Exit.
func Main(m *testing.M, options ...goleak.Option) { Exit(m.Run(), options...) }

// Exit removes what Program built, and exits with the code of the tests, or with 1 if a goroutine is
// left that does not end within Patience(10s). It is for a TestMain that closes something before.
func Exit(code int, options ...goleak.Option) {
	Cleanup()
	if code == 0 {
		if err := leaks(Patience(10*time.Second), options...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks waits until no goroutines are left but those that options name.
func leaks(limit time.Duration, options ...goleak.Option) error {
	end := time.Now().Add(limit)
	for {
		err := goleak.Find(options...) // waits for half a second itself
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// NoLeaks fails a test if a goroutine is left that does not end within Patience(10s).
func NoLeaks(t testing.TB, options ...goleak.Option) {
	t.Helper()
	if err := leaks(Patience(10*time.Second), options...); err != nil {
		t.Error(err)
	}
}

// Receive returns the next value of a channel, or the zero value if it is closed. It fails the test
// after Patience(Bound), and names what it has waited for.
func Receive[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(Patience(Bound)):
		t.Fatalf("not within %v: %s", Patience(Bound), what)
	}
	return v
}
