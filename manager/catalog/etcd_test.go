package catalog_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redykv/redykv/internal/etcdtest"
	"github.com/redykv/redykv/manager/catalog"
)

// Leases of tests: one that does not end by chance, and one whose end is awaited.
const (
	longLease  = time.Minute
	shortLease = 2 * time.Second
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
	err := term.Load(t.Context(), func(r catalog.Record) error {
		if r.Key == key {
			version = r.Version
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return version
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
	if err := <-committed; err != nil && !errors.Is(err, catalog.ErrNotLeader) { // nil: it was answered before the stop
		t.Errorf("commit of unknown outcome: %v", err)
	}
}

// A candidate leaves the queue when its context ends, even if the server hangs.
func TestEtcdHangsDuringElection(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	s, standby := openEtcd(t, server, longLease), openEtcd(t, server, longLease)
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
	case <-time.After(longLease / 3): // the client drops the connection later
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
	for {
		resp, err := c.Get(t.Context(), "/redykv/leader/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Kvs) == n {
			return resp.Kvs
		}
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
	<-old.Lost()
	if v := version(t, term, "a"); v != 1 {
		t.Errorf("version %d, want 1", v)
	}
}

func revokeAll(t *testing.T, server *etcdtest.Server) {
	t.Helper()
	c := server.Client("", "")
	defer func() { _ = c.Close() }()
	leases, err := c.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.Leases {
		if _, err := c.Revoke(t.Context(), l.ID); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Fatal(err)
		}
	}
}

// A term ends with its lease by the manager's own clock, and the manager leads again when
// the server is back.
func TestEtcdLeaseEnds(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	s := openEtcd(t, server, shortLease)
	term := campaign(t, s)
	repeat(t, term, put("a", 0))
	server.Pause()
	<-term.Lost()
	if err := term.Commit(t.Context(), []catalog.Change{put("a", 1)}); !errors.Is(err, catalog.ErrNotLeader) {
		t.Errorf("commit after the lease: %v", err)
	}
	server.Resume()
	if v := version(t, campaign(t, s), "a"); v != 1 {
		t.Errorf("version %d, want 1", v)
	}
}

// A standby takes over a large catalog, and knows the leader until then.
func TestEtcdTakeover(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	s, standby := openEtcd(t, server, longLease), openEtcd(t, server, longLease)
	term := campaign(t, s)
	const records = 100_000
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
	elected := stand(t.Context(), standby, "http://standby")
	for tick := time.Tick(10 * time.Millisecond); standby.Leader() != "http://leader"; <-tick {
		if t.Context().Err() != nil {
			t.Fatal("the standby does not know the leader")
		}
	}
	repeat(t, term, catalog.Change{Key: "vm/00000000", Version: 1}, put("z", 0))
	from := time.Now()
	revokeAll(t, server)
	e := <-elected
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
	server.RequirePasswords("fabrictest", "not used", "/p/")
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

// A term outlives a member of the cluster that hangs, as another one answers.
func TestEtcdMemberHangs(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	way := newWay(t, server.Address)
	s, err := catalog.OpenEtcd(catalog.EtcdOptions{
		Endpoints: []string{way.Addr().String(), server.Address}, LeaseTTL: longLease / 15, Logger: slog.New(slog.DiscardHandler),
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
