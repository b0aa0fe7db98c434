package catalog_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/catalog"
)

var (
	chaosSteps = flag.Int("chaos.steps", testrun.Scale(20, 20, 200), "faults of TestEtcdChaos")
	chaosSeed  = flag.Uint64("chaos.seed", 0, "seed of TestEtcdChaos; 0: as testrun.Seed")
)

// Managers lead in turn and count in one record, while the server is killed and stopped and
// leases are revoked. No commit of a leader is lost, made twice, or refused as a conflict.
func TestEtcdChaos(t *testing.T) {
	seed := testrun.Seed(t, *chaosSeed)
	rng := rand.New(rand.NewPCG(seed, 0))
	server := etcdtest.Start(t, etcdtest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	c := counters{t: t}
	var work sync.WaitGroup
	defer func() { cancel(); work.Wait() }()
	for i := range 3 {
		s := openEtcd(t, server, shortLease)
		rng := rand.New(rand.NewPCG(seed, uint64(i+1)))
		work.Go(func() { c.run(ctx, s, fmt.Sprint("http://", i), rng) })
	}
	for range *chaosSteps {
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		switch rng.IntN(4) {
		case 0:
			server.Kill()
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			server.Run()
		case 1:
			server.Pause()
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
			server.Resume()
		case 2:
			revokeAll(t, server)
		case 3:
			server.Pause()
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			server.Kill()
			server.Run()
		}
	}
	cancel()
	work.Wait()
	got := version(t, campaign(t, openEtcd(t, server, longLease)), "n")
	made, unknown := c.made.Load(), c.unknown.Load()
	t.Logf("%d terms, %d commits made, %d of unknown outcome", c.terms.Load(), made, unknown)
	if got < made || got > made+unknown {
		testrun.Wrong(t, "the record counts %d: want %d, and at most %d more", got, made, unknown)
	}
	if made == 0 {
		t.Error("no commit was made")
	}
}

type counters struct {
	t                    *testing.T
	terms, made, unknown atomic.Int64
}

// run leads again and again. A campaign that fails, as the server is away, is repeated.
func (c *counters) run(ctx context.Context, s catalog.Store, url string, rng *rand.Rand) {
	for end := time.Now().Add(testrun.Patience(testrun.Bound)); ctx.Err() == nil; {
		term, err := s.Campaign(ctx, url)
		if err != nil {
			if ctx.Err() == nil && time.Now().After(end) {
				c.t.Errorf("%s does not lead within %v: %v", url, testrun.Patience(testrun.Bound), err)
				return
			}
			clock.Sleep(ctx, 10*time.Millisecond)
			continue
		}
		end = time.Now().Add(testrun.Patience(testrun.Bound))
		c.terms.Add(1)
		c.lead(ctx, term, rng.IntN(2000))
		_ = term.Resign(ctx) // the server may be away
	}
}

// lead counts until the term ends, or to a limit.
func (c *counters) lead(ctx context.Context, term catalog.Term, limit int) {
	v := int64(0)
	if term.Load(ctx, func(r catalog.Record) error { v = r.Version; return nil }) != nil {
		return
	}
	for repeated := false; limit > 0 && (ctx.Err() == nil || repeated); {
		err := term.Commit(context.Background(), []catalog.Change{put("n", v)})
		repeated = false
		switch {
		case err == nil:
			c.made.Add(1)
			v++
			limit--
		case errors.Is(err, catalog.ErrNotLeader):
			if errors.Is(err, catalog.ErrUnavailable) {
				c.unknown.Add(1)
			}
			return
		case errors.Is(err, catalog.ErrUnavailable):
			repeated = true
		default:
			c.t.Error(err)
			return
		}
	}
}

const childEnv = "REDYKV_CATALOG_TEST_CHILD"

// A leader whose process is stopped beyond its lease changes nothing when it goes on.
func TestEtcdStoppedLeader(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+server.Address)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "leads" {
		t.Fatalf("child: %q", lines.Text())
	}
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	term := campaign(t, openEtcd(t, server, longLease))
	repeat(t, term, put("a", 1))
	t.Logf("from the stop of the leader to the first commit of the next one, lease %v: %v", shortLease, time.Since(from))
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(in, "commit"); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != catalog.ErrNotLeader.Error() {
		t.Errorf("child: %q", lines.Text())
	}
	repeat(t, term, put("a", 2))
}

// stoppedLeader is the child of TestEtcdStoppedLeader.
func stoppedLeader(address string) error {
	s, err := catalog.OpenEtcd(catalog.EtcdOptions{Endpoints: strings.Fields(address), LeaseTTL: shortLease, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	var term catalog.Term
	for err = catalog.ErrNotLeader; errors.Is(err, catalog.ErrNotLeader); { // the lease may end before the commit
		if term, err = s.Campaign(context.Background(), "http://child"); err == nil {
			err = term.Commit(context.Background(), []catalog.Change{put("a", 0)})
		}
	}
	if err != nil {
		return err
	}
	fmt.Println("leads")
	bufio.NewScanner(os.Stdin).Scan()
	return term.Commit(context.Background(), []catalog.Change{put("a", 1)})
}
