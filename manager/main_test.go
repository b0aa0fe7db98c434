package manager

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/allocator"
	"github.com/redykv/redykv/manager/api"
)

// TestMain makes the test binary what childEnv says, if a test starts it so. Otherwise it runs
// the tests and checks that no goroutine outlives them.
func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		run := register
		if role == managerChild {
			run = manage
		}
		if err := run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	api.HTTPClient.CloseIdleConnections()
	testrun.Exit(code)
}

// led returns the leader of a manager that leads.
func (m *Manager) led() *leader {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leader
}

// expireAt, departAt and auditAt are steps of monitor. A leader that has ended does nothing.
func (l *leader) expireAt(now time.Time) { l.during(func() { l.expire(now) }) }

func (l *leader) departAt(now time.Time) { l.during(func() { l.depart(now) }) }

func (l *leader) auditAt(now time.Time) { l.during(func() { l.audit(now) }) }

func (l *leader) during(do func()) {
	if _, _, leave, err := l.enter(context.Background()); err == nil {
		defer leave()
		do()
	}
}

// rest waits until the reconcilers have nothing to do, but for steps that they repeat later.
func (l *leader) rest(t testing.TB) {
	t.Helper()
	audited := func() { // waits for an audit
		l.auditor.mu.Lock()
		defer l.auditor.mu.Unlock()
	}
	audited()
	for ctx := testContext(t); l.ctx.Err() == nil && !l.idle(); {
		if !clock.Sleep(ctx, time.Millisecond) {
			t.Fatal("the reconcilers do not come to rest")
		}
	}
}

// starts returns the number of a VM's present incarnation; 0: there is none.
func starts(m *Manager, id string) uint64 {
	v := m.led().state.up(id)
	if v == nil {
		return 0
	}
	return v.Start
}

func newRequestID() string { return rand.Text() }

// idle reports whether the reconcilers have nothing to do. A step may have queued others, which
// come with its change.
func (l *leader) idle() bool {
	// written, without asking the catalog whether the term goes on
	written := func() error {
		l.state.mu.Lock()
		t := &txn{number: l.state.txns}
		l.state.writer.add(t)
		l.state.mu.Unlock()
		return l.state.writer.wait(t)
	}
	_ = written() // the catalog may have failed
	done := l.keys.counts.done.Load()
	return l.keys.counts.idle() && written() == nil && l.keys.counts.idle() && l.keys.counts.done.Load() == done
}

// nextChange returns a change number above all earlier ones.
func nextChange() uint64 { return lastChange.Add(1) }

var lastChange atomic.Uint64

// testTimeout bounds each wait of a test.
var testTimeout = testrun.Patience(time.Minute)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// testContext returns a context that ends with the test or after a timeout.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// serve starts a manager whose heartbeats and leases never expire, unless the options say
// otherwise. It is closed with the test.
func serve(t testing.TB, opts Options) (*Manager, access.Client) {
	t.Helper()
	if opts.Heartbeat == 0 {
		opts.Heartbeat = time.Hour
	}
	if opts.Lease == 0 {
		opts.Lease = -1
	}
	opts.Logger = quiet()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opts.URL = "http://" + ln.Addr().String()
	if opts.TLS != nil {
		opts.URL = "https://" + ln.Addr().String()
	}
	m, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- m.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := testrun.Receive(t, "Serve ends", served); err != nil {
			t.Error(err)
		}
	})
	return m, access.Dial(ln.Addr().String())
}

// scripted is an in-process allocator whose next launches have given outcomes.
type scripted struct {
	*allocator.InProcess

	limit    uint64 // bytes of memory
	host     allocator.Host
	mu       sync.Mutex
	outcomes []string      // of the next launches: ok, refuse, die, silent; then ok
	silent   chan struct{} // receives a value for each silent launch; buffered
}

func newScripted(t testing.TB, memory uint64) *scripted {
	t.Helper()
	a, err := allocator.NewInProcess(allocator.InProcessOptions{Memory: memory, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return &scripted{InProcess: a, limit: memory, silent: make(chan struct{}, 100)}
}

func (s *scripted) Attach(h allocator.Host) {
	s.host = h
	s.InProcess.Attach(h)
}

func (s *scripted) expect(outcomes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes = outcomes
}

func (s *scripted) Launch(ctx context.Context, spec allocator.VMSpec) error {
	s.mu.Lock()
	outcome := "ok"
	if len(s.outcomes) > 0 {
		outcome, s.outcomes = s.outcomes[0], s.outcomes[1:]
	}
	s.mu.Unlock()
	switch outcome {
	case "refuse":
		return &api.CapacityError{What: "scripted allocator", Asked: spec.Memory}
	case "die":
		s.host.Failed(spec.ID, "died at birth")
		return nil
	case "silent":
		s.silent <- struct{}{}
		return nil
	}
	return s.InProcess.Launch(ctx, spec)
}

func allocateBytes(t *testing.T, client access.Client, capacity uint64) (*managerv1.AllocateResponse, error) {
	t.Helper()
	r, err := client.Allocate(testContext(t), connect.NewRequest(&managerv1.AllocateRequest{RequestId: newRequestID(), Capacity: capacity, RegionSize: 1 << 20}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}
