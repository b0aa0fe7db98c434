package blackbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// TestRestarts kills a store with a Redy cache again and again, under load, and starts it again.
// It takes the cache up, which has bytes that the killed process had written and not committed,
// and parts of such writes, or which alone has the last commits. All keys are checked after each
// start, while the cache's pieces are checked.
func TestRestarts(t *testing.T) {
	testrun.SkipUnlessAll(t, "it runs servers for a minute")
	s := &restarts{dir: t.TempDir()}
	n := cycles(t, 4, "store", s.life)
	t.Logf("%d stores, %d kills and %d stops, %d caches taken up with %d bytes that were right and %d that were not, %d with the last commits; %d replies and %d keys checked",
		n, s.kills, s.stops, s.taken, s.kept, s.dropped, s.fetched, s.replies, s.verified)
	if s.taken == 0 || s.kept == 0 {
		t.Error("no cache was taken up")
	}
}

// restarts is a store that is restarted repeatedly.
type restarts struct {
	dir     string
	promise Promise
	load    *Load
	argv    []string

	kills, stops, taken, kept, dropped, fetched, replies, verified int
}

func (s *restarts) life(ctx context.Context, r *rand.Rand, seed uint64) error {
	store := filepath.Join(s.dir, "store")
	if err := os.RemoveAll(store); err != nil {
		return err
	}
	starting, cancel := context.WithTimeoutCause(ctx, patience, errors.New("patience ends"))
	defer cancel()
	manager, err := Start(starting, regexp.MustCompile(`manager ready at (\S+)`), *binary, "manager", "--calibrate=false", "--listen", "127.0.0.1:0",
		"--transport", []string{"shm", "tcp"}[r.IntN(2)], "--catalog", "memory:", "--lease", "5s", "--heartbeat", "300ms")
	if err != nil {
		return err
	}
	defer manager.Kill()
	s.promise = []Promise{Always, EverySec}[r.IntN(2)]
	s.load = newLoad(r, s.promise)
	s.load.Model.Slack = 10 * time.Second
	s.argv = append([]string{
		*binary, "serve", "--addr", "127.0.0.1:0", "--dir", store, "--durability", string(s.promise), "--redy", manager.Ready[0],
		"--cache", []string{"1MiB", "4MiB", "16MiB"}[r.IntN(3)], "--cache-linger", "1m", "--commit-point", []string{"ssd", "redy"}[r.IntN(2)],
	}, someFlags(r)...)
	for round := range 3 + r.Uint64N(6) {
		if err := s.round(ctx, r, seed<<8+round); err != nil {
			return fmt.Errorf("%s, round %d: %w", s.promise, round, err)
		}
	}
	replies, verified := s.load.Model.Counts()
	s.replies, s.verified = s.replies+replies, s.verified+verified
	return manager.Stop(patience)
}

// round runs the store under load until it is killed or, more seldom, stopped, and starts it
// again to check all keys, twice: before and after the cache is checked.
func (s *restarts) round(ctx context.Context, r *rand.Rand, seed uint64) error {
	p, err := serve(ctx, s.argv)
	if err != nil {
		return err
	}
	defer p.Kill()
	s.load.Dial = dialer(p.Ready[0])
	longest := []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2500 * time.Millisecond}[r.IntN(3)]
	stop := r.IntN(5) == 0
	at, err := s.load.during(ctx, seed, waits(chance(r, longest)), busy, func() error {
		if stop {
			s.stops++
			return p.Stop(patience)
		}
		s.kills++
		p.Kill()
		return nil
	})
	if err == nil && !stop {
		err = p.Crashed()
	}
	if err != nil {
		return err
	}
	p, err = serve(ctx, s.argv)
	if err != nil {
		return err
	}
	defer p.Kill()
	for range 2 {
		if err := check(ctx, s.load.Model, dialer(p.Ready[0]), s.promise, at); err != nil {
			return fmt.Errorf("%w\n%s", err, p.Log())
		}
	}
	s.count(p.Log())
	p.Kill()
	return p.Crashed()
}

var (
	takenUp = regexp.MustCompile(`the cache of before the restart is taken up`)
	fetched = regexp.MustCompile(`the last commits were in memory`)
	checked = regexp.MustCompile(`contents of the cache were checked.* kept=(\d+) dropped=(\d+)`)
)

// count counts what a server's log says of its cache.
func (s *restarts) count(log string) {
	if takenUp.MatchString(log) {
		s.taken++
	}
	if fetched.MatchString(log) {
		s.fetched++
	}
	if m := checked.FindStringSubmatch(log); m != nil {
		kept, _ := strconv.Atoi(m[1]) // of digits
		dropped, _ := strconv.Atoi(m[2])
		s.kept, s.dropped = s.kept+kept, s.dropped+dropped
	}
}
