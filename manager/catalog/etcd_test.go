package catalog_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/internal/selfsigned"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/catalog"
)

// Leases of tests.
const (
	endlessLease = time.Hour       // outlives any wait of a test
	longLease    = time.Minute     // does not end by chance
	hangLease    = 8 * time.Second // a call to a member that hangs takes half of it
	shortLease   = 2 * time.Second // its end is awaited
)

func openEtcd(t *testing.T, server *etcdtest.Server, lease time.Duration) *catalog.Etcd {
	t.Helper()
	s, err := catalog.OpenEtcd(catalog.EtcdOptions{
		Endpoints: []string{server.Address}, LeaseTTL: lease, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func campaign(t *testing.T, s catalog.Store) catalog.Term {
	t.Helper()
	term, err := s.Campaign(t.Context(), "http://leader")
	if err != nil {
		t.Fatal(err)
	}
	return term
}

// impatient tries a commit for a short time.
func impatient(t *testing.T, term catalog.Term, changes ...catalog.Change) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return term.Commit(ctx, changes)
}

// repeat repeats a commit while its outcome is not known.
func repeat(t *testing.T, term catalog.Term, changes ...catalog.Change) {
	t.Helper()
	for {
		err := term.Commit(t.Context(), changes)
		if err == nil {
			return
		}
		if !errors.Is(err, catalog.ErrUnavailable) && !errors.Is(err, catalog.ErrFull) {
			t.Fatal(err)
		}
	}
}

func version(t *testing.T, term catalog.Term, key string) (version int64) {
	t.Helper()
	for version = 0; ; version = 0 {
		err := term.Load(t.Context(), func(r catalog.Record) error {
			if r.Key == key {
				version = r.Version
			}
			return nil
		})
		if err == nil {
			return version
		}
		if !errors.Is(err, catalog.ErrUnavailable) || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

func put(key string, version int64) catalog.Change {
	return catalog.Change{Key: key, Value: []byte(key), Version: version}
}

// The term outlives an absence of the server, and a commit is made once.
func TestEtcdAway(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	s := openEtcd(t, server, longLease)
	term := campaign(t, s)
	repeat(t, term, put("a", 0))
	server.Kill()
	if err := impatient(t, term, put("a", 1)); !errors.Is(err, catalog.ErrUnavailable) || errors.Is(err, catalog.ErrNotLeader) {
		t.Errorf("commit without etcd: %v", err)
	} else if !strings.Contains(err.Error(), "etcd "+server.Address) {
		t.Errorf("an error without etcd's address: %v", err)
	}
	if err := impatient(t, term, put("b", 0)); err == nil || errors.Is(err, catalog.ErrUnavailable) {
		t.Errorf("another commit before the outcome of the first is known: %v", err)
	}
	server.Run()
	repeat(t, term, put("a", 1))
	repeat(t, term, put("b", 0))
	if v := version(t, term, "a"); v != 2 {
		t.Errorf("version %d, want 2", v)
	}
	select {
	case <-term.Lost():
		t.Error("the term has ended")
	default:
	}
}

// A commit that a stopped server answers late is made once.
func TestEtcdSlow(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	term := campaign(t, openEtcd(t, server, longLease))
	for v := range int64(5) {
		server.Pause()
		err := impatient(t, term, put("a", v)) // nil: it was answered before the stop
		server.Resume()
		if errors.Is(err, catalog.ErrUnavailable) {
			repeat(t, term, put("a", v))
		} else if err != nil {
			t.Errorf("commit with a stopped etcd: %v", err)
		}
		if got := version(t, term, "a"); got != v+1 {
			t.Errorf("version %d, want %d", got, v+1)
		}
	}
}

// Close does not wait for a server that hangs, neither do Campaign and Resign beyond their
// contexts.
func TestEtcdHangs(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	s, standby := openEtcd(t, server, longLease), openEtcd(t, server, longLease)
	term := campaign(t, s)
	server.Pause()
	defer server.Resume()
	committed := make(chan error)
	go func() { committed <- term.Commit(context.Background(), []catalog.Change{put("a", 0)}) }()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := standby.Campaign(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("campaign: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := testrun.Receive(t, "the commit ends", committed); err != nil && !errors.Is(err, catalog.ErrNotLeader) { // nil: it was answered before the stop
		t.Errorf("commit of unknown outcome: %v", err)
	}
}

func TestEtcdFull(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{Quota: 8 << 20})
	term := campaign(t, openEtcd(t, server, longLease))
	server.Fill()
	for range 2 {
		if err := term.Commit(t.Context(), []catalog.Change{put("a", 0)}); !errors.Is(err, catalog.ErrFull) {
			t.Errorf("commit to a full etcd: %v", err)
		}
	}
	server.Clear()
	repeat(t, term, put("a", 0))
	if v := version(t, term, "a"); v != 1 {
		t.Errorf("version %d, want 1", v)
	}
}

// Whenever the server is killed, each commit is made once.
func TestEtcdKilled(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	term := campaign(t, openEtcd(t, server, longLease))
	stop, killed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stop)
		for range 5 {
			for range 3 {
				<-killed // some commits are under way
			}
			server.Kill()
			server.Run()
		}
	}()
	v := int64(0)
	for running := true; running; {
		// Both are in each commit; one of them is created and deleted in turn.
		other := put("b", 0)
		if v%2 == 1 {
			other = catalog.Change{Key: "b", Version: 1}
		}
		repeat(t, term, put("a", v), other)
		v++
		select {
		case killed <- struct{}{}:
		case <-stop:
			running = false
		default:
		}
	}
	if got := version(t, term, "a"); got != v {
		t.Errorf("version %d after %d commits", got, v)
	}
	if got := version(t, term, "b"); got != v%2 {
		t.Errorf("b has version %d after %d commits", got, v)
	}
}

// A term ends with its lease by the manager's own clock, and the manager leads again when
// the server is back.
func TestEtcdLeaseEnds(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	first := campaign(t, openEtcd(t, server, longLease))
	repeat(t, first, put("a", 0))
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := openEtcd(t, server, shortLease)
	term := campaign(t, s)
	server.Pause()
	testrun.Receive(t, "the term ends", term.Lost())
	if err := term.Commit(t.Context(), []catalog.Change{put("a", 1)}); !errors.Is(err, catalog.ErrNotLeader) {
		t.Errorf("commit after the lease: %v", err)
	}
	server.Resume()
	_ = campaign(t, s).Resign(t.Context()) // the lease may have ended
	if v := version(t, campaign(t, openEtcd(t, server, longLease)), "a"); v != 1 {
		t.Errorf("version %d, want 1", v)
	}
}

// A prefix of another version or of another program is refused and not changed.
func TestEtcdFormat(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	c := server.Client("", "")
	defer func() { _ = c.Close() }()
	for key, value := range map[string]string{"/redykv/format": "redykv manager catalog 99", "/redykv/other": "x"} {
		if _, err := c.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
		before, err := c.Get(t.Context(), "", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		_, err = openEtcd(t, server, longLease).Campaign(t.Context(), "")
		if !errors.Is(err, catalog.ErrFormat) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", key, err)
		}
		after, err := c.Get(t.Context(), "", clientv3.WithPrefix())
		if err != nil || after.Header.Revision != before.Header.Revision {
			t.Errorf("%s: the catalog was changed: %v", key, err)
		}
		if _, err := c.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEtcdSecure(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{TLS: true})
	server.RequirePasswords("us@er", "pass:word", "/p/")
	file := url.QueryEscape(server.File)
	login, files := url.UserPassword("us@er", "pass:word").String()+"@", "?ca="+url.QueryEscape(server.CA)+"&cert="+file+"&key="+file
	quiet := catalog.Options{Logger: slog.New(slog.DiscardHandler)}
	s, err := catalog.Open("etcd+tls://"+login+server.Address+"/p"+files, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	term := campaign(t, s)
	repeat(t, term, put("a", 0))
	if v := version(t, term, "a"); v != 1 {
		t.Errorf("version %d, want 1", v)
	}
	for name, u := range map[string]string{
		"no login":       "etcd+tls://" + server.Address + "/p" + files,
		"wrong password": "etcd+tls://us%40er:wrong@" + server.Address + "/p" + files,
		"other prefix":   "etcd+tls://" + login + server.Address + "/q" + files,
	} {
		s, err := catalog.Open(u, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Campaign(t.Context(), ""); err == nil || strings.Contains(err.Error(), "wrong@") {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Logf("%s: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The common name of a certificate is a login, too.
func TestEtcdCertificate(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{TLS: true})
	server.RequirePasswords(selfsigned.Name, "not used", "/p/")
	file := url.QueryEscape(server.File)
	files := "?ca=" + url.QueryEscape(server.CA) + "&cert=" + file + "&key=" + file
	open := func(prefix string) catalog.Store {
		s, err := catalog.Open("etcd+tls://"+server.Address+prefix+files, catalog.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	repeat(t, campaign(t, open("/p")), put("a", 0))
	if _, err := open("/q").Campaign(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("another prefix: %v", err)
	}
}

// A term outlives a member of the cluster that hangs, as another one answers.
func TestEtcdMemberHangs(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	way := newWay(t, server.Address)
	s, err := catalog.OpenEtcd(catalog.EtcdOptions{
		Endpoints: []string{way.Addr().String(), server.Address}, LeaseTTL: hangLease, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	term := campaign(t, s)
	for v := range int64(4) {
		repeat(t, term, put("a", v))
	}
	way.block()
	for range 3 { // one member or the other is asked
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second) // gRPC notices nothing before 10 s
		if err := term.Load(ctx, func(catalog.Record) error { return nil }); err != nil {
			t.Error(err)
		}
		cancel()
	}
	for v := int64(4); v < 6; v++ {
		repeat(t, term, put("a", v))
	}
	if v := version(t, term, "a"); v != 6 {
		t.Errorf("version %d, want 6", v)
	}
}

// way is a way to a server that can be blocked.
type way struct {
	net.Listener
	blocked chan struct{}
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{Listener: l, blocked: make(chan struct{})}
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			onward, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			work.Go(func() { w.carry(from, onward) })
			work.Go(func() { w.carry(onward, from) })
		}
	})
	return w
}

// block keeps all connections and carries nothing any more.
func (w *way) block() { close(w.blocked) }

func (w *way) carry(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		select {
		case <-w.blocked:
			continue
		default:
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
