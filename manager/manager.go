package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/api/strictjson"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/catalog"
)

// Manager grants remote memory to caches while it leads; of several managers on one catalog
// one leads, and the others stand by. Its methods are safe for concurrent use.
type Manager struct {
	opts    Options
	store   catalog.Store
	durable bool // the catalog outlives the manager
	search  *searcher
	http    *http.Server
	servers *http.Client // calls the servers' control APIs
	guard   *access.Guard
	serving chan struct{} // closed by Serve
	rates   rates         // at which memory leaves a VM
	counts  *counts
	stuck   atomic.Pointer[error] // why the leader makes no progress; nil: it does

	ctx     context.Context // ends at Close, or when the catalog cannot be used
	cancel  context.CancelCauseFunc
	running sync.WaitGroup // run

	mu     sync.Mutex // guards the fields below
	closed bool
	url    string
	leader *leader // nil: another manager leads, or none
}

// errClosing is the error of calls while the manager closes.
var errClosing = connect.NewError(connect.CodeUnavailable, errors.New("manager is closing"))

// New returns a manager whose loops run but which is not served yet: see Serve and
// Handler. On a catalog of its own it leads at once; on a shared one it stands for election
// when Serve is called. Errors of the catalog are [catalog.ErrInUse], [catalog.ErrCorrupt],
// [catalog.ErrFormat], and those of the file system. A model of another transport is an
// [allocator.ErrTransport].
func New(opts Options) (_ *Manager, err error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	search, err := newSearcher(&opts)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		opts: opts, store: opts.store, durable: opts.durable(), search: search, url: opts.URL, rates: rates{base: opts.MigrationRate}, serving: make(chan struct{}),
		counts: newCounts(),
	}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	m.servers = api.HTTPClient
	if opts.ServerTLS != nil {
		m.servers = api.NewHTTPClient(opts.ServerTLS)
	}
	m.guard = &access.Guard{Tokens: opts.Tokens, Now: opts.now, Standby: m.notLeader}
	m.http = api.NewHTTPServer(m.Handler(), opts.Logger)
	m.http.TLSConfig = opts.TLS
	if m.store == nil {
		m.store, err = opts.openCatalog()
	}
	if err == nil {
		err = m.open()
	}
	if err != nil {
		m.cancel(err)
		return nil, fmt.Errorf("manager: %w", err)
	}
	m.gauge()
	return m, nil
}

// open attaches the allocator, which may call the manager from then on, and leads if the
// catalog is the manager's own.
func (m *Manager) open() (err error) {
	if m.opts.Allocator != nil {
		m.opts.Allocator.Attach(host{m})
	}
	var l *leader
	if err = m.checkWarm(); err == nil && !m.store.Shared() {
		l, err = m.campaign(m.ctx)
	}
	if err != nil {
		m.shut()
		return errors.Join(err, m.store.Close())
	}
	if l != nil {
		m.running.Go(func() { m.run(l) })
	}
	return nil
}

// maxMessage bounds the bytes of one request.
const maxMessage = 64 << 10

// minCompressed is the size in bytes from which answers are compressed. To compress a small one
// costs more than the rest of its call.
const minCompressed = 16 << 10

// Handler returns a handler of the control API in Connect, gRPC, gRPC-Web and JSON. gRPC
// needs a server with HTTP/2, as Serve's. JSON with an unknown field is refused.
func (m *Manager) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(managerv1connect.NewManagerServiceHandler(service{m: m},
		connect.WithReadMaxBytes(maxMessage), connect.WithCompressMinBytes(minCompressed), connect.WithInterceptors(connect.UnaryInterceptorFunc(m.counts.calls.measure), connect.UnaryInterceptorFunc(m.hearRefused), m.guard), strictjson.Option()))
	m.health(mux)
	if m.opts.Pages != nil {
		m.opts.Pages(mux, m.operator)
	}
	return mux
}

// operator returns the error of a request that may not make all calls.
func (m *Manager) operator(r *http.Request) error {
	_, err := m.guard.Admit(r.Context(), managerv1connect.ManagerServiceDescribeProcedure, r.Header.Get("Authorization"))
	return err
}

// Serve serves the control API at ln until Close, and then returns nil. It returns an
// error when the catalog cannot be written, or if the catalog is that of a manager at
// another URL ([ErrStateAddress]). It is called once.
func (m *Manager) Serve(ln net.Listener) error {
	scheme, serve := "http://", m.http.Serve
	if m.opts.TLS != nil {
		scheme, serve = "https://", func(ln net.Listener) error { return m.http.ServeTLS(ln, "", "") }
	}
	m.mu.Lock()
	m.url = cmp.Or(m.url, scheme+reachable(ln.Addr().String()))
	l := m.leader
	m.mu.Unlock()
	switch {
	case m.store.Shared():
		m.running.Go(func() { m.run(nil) })
	case l == nil: // it closes
	default:
		if err := l.keepSetting(); err != nil && !errors.Is(context.Cause(m.ctx), errClosing) {
			return fmt.Errorf("manager: %w", errors.Join(err, ln.Close()))
		}
	}
	if !m.durable {
		m.opts.Logger.Info("catalog is in memory: a restart forgets all caches")
	}
	close(m.serving)
	if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("manager: serve at %v: %w", ln.Addr(), err)
	}
	if err := context.Cause(m.ctx); err != nil && !errors.Is(err, errClosing) {
		return fmt.Errorf("manager: %w", err)
	}
	return nil
}

// reachable returns an address at which a listener can be dialled on this machine.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// Serving returns a channel that is closed when Serve has begun to serve.
func (m *Manager) Serving() <-chan struct{} { return m.serving }

// URL returns the URL of the control API; before Serve it is empty unless set in Options.
func (m *Manager) URL() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.url
}

// Close ends all calls and watches, then closes the allocator, which terminates the VMs
// that cannot outlive it. When ctx ends, open connections are closed. Closing again does
// nothing.
func (m *Manager) Close(ctx context.Context) error {
	if !m.shut() {
		return nil
	}
	m.cancel(errClosing)
	var err error
	if m.http.Shutdown(ctx) != nil { // ctx has ended
		err = m.http.Close()
	}
	m.running.Wait()
	m.servers.CloseIdleConnections()
	if m.opts.Allocator != nil {
		err = errors.Join(err, m.opts.Allocator.Close())
	}
	if err = errors.Join(err, m.store.Close()); err != nil {
		return fmt.Errorf("manager: close: %w", err)
	}
	return nil
}

// shut makes enter fail from now on. It returns false if it was called before.
func (m *Manager) shut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := !m.closed
	m.closed = true
	return open
}

// monitor calls expire at each deadline. If it was delayed, by a process that stood still or
// by a wait for the state's lock, it postpones the deadlines of heartbeats and leases.
func (l *leader) monitor() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for checked := time.Now(); ; {
		asked := time.Now() // before waiting for the state's lock, as calls do
		wait, all := l.untilNextCheck(asked.Sub(checked))
		timer.Reset(wait)
		due := false
		select {
		case <-timer.C:
			due = true
		case <-l.wake:
		case <-l.ctx.Done():
			return
		}
		if late := time.Since(asked) - wait; late > l.opts.Heartbeat {
			l.opts.Logger.Warn("manager was delayed: heartbeats and leases get more time", "for", late)
			l.state.postpone(late)
		}
		if !due {
			continue
		}
		check := l.depart
		if all {
			check, checked = l.expire, time.Now()
		}
		now := l.opts.now()
		l.work.Go(func() { check(now) }) // it may wait for a server
	}
}

// untilNextCheck returns the time until the next deadline that monitor has to check: that of a
// reclaimed VM, or of all the rest, which was checked before the time since.
func (l *leader) untilNextCheck(since time.Duration) (wait time.Duration, all bool) {
	wait, all = min(l.opts.Heartbeat, checkEvery), true
	if l.opts.Lease > 0 {
		wait = min(wait, l.opts.Lease)
	}
	wait -= since
	if next, ok := l.state.nextLeave(); ok {
		if left := next.Sub(l.opts.now()); left < wait {
			wait, all = left, false
		}
	}
	return max(wait, minCheck), all
}

const (
	// checkEvery is the maximum of monitor's interval.
	checkEvery = time.Second
	// minCheck is the minimum of it, while a VM takes time to fail.
	minCheck = time.Millisecond
)

// terminateTimeout bounds the termination of one VM.
const terminateTimeout = 5 * time.Second

// fail marks a VM as lost, or only one incarnation of it: its caches are told, and if the
// allocator launched it, it is terminated.
func (l *leader) fail(id string, only *vm, reason string) {
	v, _ := l.state.fail(id, only, reason) // the leader ends if the catalog does
	if v == nil {
		return // it was lost before
	}
	l.counts.note(func(n *Metrics) { n.Failed++ })
	l.opts.Logger.Warn("VM failed", "vm", v.id, "reason", reason)
}

// failAll is fail for many VMs, which it marks together: they may be all of a rack.
func (l *leader) failAll(lost []loss) {
	failed, _ := l.state.failAll(lost) // the leader ends if the catalog does
	l.counts.note(func(n *Metrics) { n.Failed += uint64(len(failed)) })
	for _, f := range failed {
		l.opts.Logger.Warn("VM failed", "vm", f.vm.id, "reason", f.reason)
	}
}

// maxReasonLen bounds the reason of a reclaim, in bytes.
const maxReasonLen = 1 << 10

// reclaim announces that a VM is taken back at a deadline: its caches are told, no more of
// its memory is granted, and at the deadline it fails. It returns the earliest deadline
// that was announced, which holds. start is that of the server's incarnation; 0: any.
func (l *leader) reclaim(id string, start uint64, deadline time.Time, reason string) (time.Time, error) {
	deadline, first, err := l.state.reclaim(id, start, l.opts.now(), deadline, reason)
	if err != nil || !first {
		wake(l.wake) // the deadline may be an earlier one
		return deadline, err
	}
	l.counts.note(func(n *Metrics) { n.Reclaimed++ })
	l.opts.Logger.Warn("VM is reclaimed", "vm", id, "deadline", deadline, "reason", reason)
	wake(l.wake)
	return deadline, nil
}

// wake wakes the receiver of a channel of capacity 1, unless it has a wake-up pending.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
