package blackbox

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

var (
	runFor = flag.Duration("for", testrun.For(10*time.Minute), "how long each test runs; 0: a number of cycles")
	seed   = flag.Uint64("seed", 0, "the first cycle's seed, of which the next ones count on; 0: as testrun.Seed")
	binary = flag.String("binary", "", "the redykv to test (default: one that is built for it)")
)

// patience is the time limit of a program's steps; the machine may be busy.
var patience = testrun.Patience(2 * time.Minute)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(withOwnMounts(func() int {
		code := m.Run()
		testrun.Cleanup()
		return code
	}))
}

// cycles runs as many cycles, each with the next seed, or with -for, cycles until the time is up. It
// returns their number.
func cycles(t *testing.T, count int, what string, cycle func(ctx context.Context, r *rand.Rand, seed uint64) error) (n int) {
	t.Helper()
	if *binary == "" {
		*binary = testrun.Program(t)
	}
	first := testrun.Seed(t, *seed)
	said, end := time.Now(), time.Now().Add(*runFor)
	for n = 0; n == 0 || time.Now().Before(end) || *runFor == 0 && n < count; n++ {
		seed := first + uint64(n)
		ctx, cancel := context.WithTimeoutCause(context.Background(), 10*patience, errors.New("a cycle takes too long"))
		err := cycle(ctx, rand.New(rand.NewPCG(seed, 1)), seed)
		cancel()
		if err != nil {
			t.Fatalf("%s %d, seed %d: %v\n\nto repeat it: go test ./internal/blackbox -run '^%s$' -seed %d -for 1s", what, n, seed, err, t.Name(), seed)
		}
		if time.Since(said) > time.Minute {
			said = time.Now()
			fmt.Printf("%s: %d cycles\n", t.Name(), n+1)
		}
	}
	return n
}

var readyAt = regexp.MustCompile(`redykv ready at (\S+)`)

// serve starts a server.
func serve(ctx context.Context, argv []string) (*Process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("patience ends"))
	defer cancel()
	return Start(ctx, readyAt, argv...)
}

// chance returns a random duration below longest.
func chance(r *rand.Rand, longest time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(longest)))
}

// busy as a rest means that the load goes on.
const busy = time.Duration(-1)

// during runs the load during meanwhile, and then calls end: when the load is complete and
// the rest has passed, or during the load if rest is busy. It returns the time at which end
// was called.
func (l *Load) during(ctx context.Context, seed uint64, meanwhile func(context.Context) error, rest time.Duration, end func() error) (at time.Time, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go l.Model.tick(ctx)
	ended := make(chan error, 1)
	running, over := context.WithCancel(ctx) // ends early if the load ends by itself, which is an error
	go func() {
		defer over()
		ended <- l.Run(ctx, seed)
	}()
	err = meanwhile(running)
	if running.Err() != nil {
		return at, errors.Join(errors.New("the load ended"), <-ended, end())
	}
	if rest != busy {
		stop()
		err = errors.Join(err, <-ended)
		ended <- nil
		time.Sleep(rest)
	}
	l.Ending()
	at = time.Now()
	err = errors.Join(err, end())
	stop()
	return at, errors.Join(err, <-ended)
}

// waits returns a function that waits for a time, or until ctx ends.
func waits(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
		return nil
	}
}

// dialer returns a function that connects to an address.
func dialer(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", addr) }
}

// check reads all keys of a model from a server and checks them.
func check(ctx context.Context, m *Model, dial func(context.Context) (net.Conn, error), promise Promise, ended time.Time) error {
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	states, failed, err := Read(NewConn(conn), m.Keys(), patience)
	if err != nil {
		return fmt.Errorf("reading all keys: %w", err)
	}
	for key, r := range failed {
		return fmt.Errorf("%d of %d keys cannot be read: %q is answered %v", len(failed), len(failed)+len(states), key, r)
	}
	return m.Recovered(states, promise, ended)
}
