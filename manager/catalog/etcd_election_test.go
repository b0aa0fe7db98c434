package catalog_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/catalog"
)

// A candidate leaves the queue when its context ends, even if the server hangs.
func TestEtcdHangsDuringElection(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	s, standby := openEtcd(t, server, endlessLease), openEtcd(t, server, endlessLease)
	campaign(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := stand(ctx, standby, "http://standby")
	awaitCandidates(t, server, 2)
	server.Pause()
	defer server.Resume()
	cancel()
	select {
	case e := <-left:
		if !errors.Is(e.err, context.Canceled) {
			t.Error(e.err)
		}
	case <-time.After(testrun.Patience(20 * time.Second)): // the client drops the connection later
		t.Error("the candidate waits for the server")
	}
}

// outcome is that of a Campaign.
type outcome struct {
	term catalog.Term
	err  error
}

// stand begins a Campaign.
func stand(ctx context.Context, s catalog.Store, url string) <-chan outcome {
	c := make(chan outcome, 1)
	go func() {
		term, err := s.Campaign(ctx, url)
		c <- outcome{term, err}
	}()
	return c
}

// awaitCandidates waits until n candidates' keys exist, and returns them, the oldest first.
func awaitCandidates(t *testing.T, server *etcdtest.Server, n int) []*mvccpb.KeyValue {
	t.Helper()
	c := server.Client("", "")
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(time.Minute))
	defer cancel()
	for {
		resp, err := c.Get(ctx, "/redykv/leader/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil {
			t.Fatalf("waiting for %d candidates: %v", n, err)
		}
		if len(resp.Kvs) == n {
			return resp.Kvs
		}
		time.Sleep(time.Millisecond)
	}
}

// A leader that does not know that its lease has ended changes nothing.
func TestEtcdLeaseRevoked(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	old := campaign(t, openEtcd(t, server, longLease))
	repeat(t, old, put("a", 0))
	revokeAll(t, server)
	term := campaign(t, openEtcd(t, server, longLease))
	if err := old.Commit(t.Context(), []catalog.Change{put("a", 1)}); !errors.Is(err, catalog.ErrNotLeader) || errors.Is(err, catalog.ErrUnavailable) {
		t.Errorf("commit of an earlier leader: %v", err)
	}
	testrun.Receive(t, "the earlier term ends", old.Lost())
	if v := version(t, term, "a"); v != 1 {
		t.Errorf("version %d, want 1", v)
	}
}

func revokeAll(t *testing.T, server *etcdtest.Server) {
	t.Helper()
	c := server.Client("", "")
	defer func() { _ = c.Close() }()
	testrun.UntilNil(t, func() error { // a server that was stopped a moment ago may refuse calls
		leases, err := c.Leases(t.Context())
		if err != nil {
			return err
		}
		for _, l := range leases.Leases {
			if _, err := c.Revoke(t.Context(), l.ID); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return err
			}
		}
		return nil
	})
}

// A standby takes over a large catalog, and knows the leader until then.
func TestEtcdTakeover(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	s, standby := openEtcd(t, server, longLease), openEtcd(t, server, longLease)
	term := campaign(t, s)
	records := testrun.Scale(20_000, 20_000, 100_000)
	value := []byte(strings.Repeat("v", 300))
	for from := 0; from < records; from += 100 {
		changes := make([]catalog.Change, 100)
		for i := range changes {
			changes[i] = catalog.Change{Key: fmt.Sprintf("vm/%08d", from+i), Value: value}
		}
		if err := term.Commit(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(time.Minute))
	defer cancel()
	elected := stand(ctx, standby, "http://standby")
	for standby.Leader() != "http://leader" {
		if ctx.Err() != nil {
			t.Fatal("the standby does not know the leader")
		}
		time.Sleep(time.Millisecond)
	}
	repeat(t, term, catalog.Change{Key: "vm/00000000", Version: 1}, put("z", 0))
	from := time.Now()
	revokeAll(t, server)
	e := testrun.Receive(t, "the standby is elected", elected)
	if e.err != nil {
		t.Fatal(e.err)
	}
	n := 0
	err := e.term.Load(t.Context(), func(catalog.Record) error { n++; return nil })
	t.Logf("from the end of the lease to %d records loaded: %v", n, time.Since(from))
	if n != records || err != nil {
		t.Errorf("%d records, %v", n, err)
	}
}

// A manager that is restarted at its URL does not wait for the lease of its dead process,
// which Close leaves.
func TestEtcdRestart(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(time.Minute)) // no lease ends by itself
	defer cancel()
	die := func(s *catalog.Etcd) {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	dead := openEtcd(t, server, endlessLease)
	campaign(t, dead)
	die(dead)
	s := openEtcd(t, server, endlessLease)
	e := testrun.Receive(t, "the manager is elected", stand(ctx, s, "http://leader"))
	if e.err != nil {
		t.Fatal("a restarted leader waits: ", e.err)
	}

	dead = openEtcd(t, server, endlessLease)
	stand(ctx, dead, "http://standby")
	before := awaitCandidates(t, server, 2)
	die(dead)
	standby := stand(ctx, openEtcd(t, server, endlessLease), "http://standby")
	for awaitCandidates(t, server, 2)[1].Lease == before[1].Lease {
		if ctx.Err() != nil {
			t.Fatal("a restarted standby has not replaced its dead process")
		}
	}
	if err := e.term.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	if e := testrun.Receive(t, "the standby is elected", standby); e.err != nil {
		t.Error("a restarted standby waits: ", e.err)
	}
}

// A manager at another URL waits for the lease of a dead leader.
func TestEtcdRestartElsewhere(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	dead := openEtcd(t, server, endlessLease)
	campaign(t, dead)
	if err := dead.Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(time.Minute)) // no lease ends by itself
	defer cancel()
	other := stand(ctx, openEtcd(t, server, endlessLease), "http://other")
	awaitCandidates(t, server, 2)
	select {
	case e := <-other:
		t.Error("elected before the lease has ended: ", e.err)
	default:
	}
	revokeAll(t, server)
	if e := testrun.Receive(t, "the other is elected", other); e.err != nil {
		t.Error(e.err)
	}
}

// Of two managers with one URL, each deposes the other at most once.
func TestEtcdSameURL(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(time.Minute)) // no lease ends by itself
	defer cancel()
	stores := [2]*catalog.Etcd{openEtcd(t, server, endlessLease), openEtcd(t, server, endlessLease)}
	var terms [2]catalog.Term
	for i, s := range stores {
		e := testrun.Receive(t, "the manager is elected", stand(ctx, s, "http://leader"))
		if e.err != nil {
			t.Fatal(e.err)
		}
		terms[i] = e.term
	}
	for i := range 3 {
		deposed, leader := i%2, (i+1)%2
		if err := terms[deposed].Commit(t.Context(), nil); !errors.Is(err, catalog.ErrNotLeader) {
			t.Fatalf("commit of a deposed leader: %v", err)
		}
		again := stand(ctx, stores[deposed], "http://leader")
		awaitCandidates(t, server, 2)
		if err := terms[leader].Commit(t.Context(), nil); err != nil {
			t.Fatalf("deposed again: %v", err)
		}
		if err := terms[leader].Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		e := testrun.Receive(t, "the deposed manager is elected again", again)
		if e.err != nil {
			t.Fatal(e.err)
		}
		terms[deposed] = e.term
	}
}

// A manager without a URL deposes no other.
func TestEtcdNoURL(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(time.Minute)) // no lease ends by itself
	defer cancel()
	e := testrun.Receive(t, "the manager is elected", stand(ctx, openEtcd(t, server, endlessLease), ""))
	if e.err != nil {
		t.Fatal(e.err)
	}
	stand(ctx, openEtcd(t, server, endlessLease), "")
	awaitCandidates(t, server, 2)
	if err := e.term.Commit(ctx, nil); err != nil {
		t.Error(err)
	}
}

// The lease that etcd grants is shorter by the time that etcd takes to notice its end.
func TestEtcdGrantedLease(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	c := server.Client("", "")
	defer func() { _ = c.Close() }()
	for lease, want := range map[time.Duration]int64{2 * time.Second: 2, 3 * time.Second: 2, 4 * time.Second: 3, 5 * time.Second: 4, time.Minute: 59} {
		s := openEtcd(t, server, lease)
		term := campaign(t, s)
		granted, err := c.TimeToLive(t.Context(), clientv3.LeaseID(awaitCandidates(t, server, 1)[0].Lease))
		if err != nil {
			t.Fatal(err)
		}
		if granted.GrantedTTL != want {
			t.Errorf("lease %v: granted %d s, want %d s", lease, granted.GrantedTTL, want)
		}
		if err := term.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A manager waits for a server that it cannot reach, and says why.
func TestEtcdUnreachable(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{TLS: true})
	ctx, cancel := context.WithCancel(t.Context())
	logged := &firstLog{done: cancel}
	s, err := catalog.OpenEtcd(catalog.EtcdOptions{
		Endpoints: []string{server.Address}, TLS: &tls.Config{MinVersion: tls.VersionTLS12}, LeaseTTL: shortLease, Logger: slog.New(logged),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Campaign(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if !strings.Contains(logged.text, "certificate") {
		t.Errorf("logged: %s", logged.text)
	}
}

// firstLog is a log that ends something with its first message.
type firstLog struct {
	slog.Handler
	text string
	done func()
}

func (l *firstLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *firstLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		l.text += a.String()
		return true
	})
	l.done()
	return nil
}
