package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/api/strictjson"
	"github.com/redykv/redykv/internal/controltoken"
	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
)

// Manager grants remote memory to caches. Its methods are safe for concurrent use.
type Manager struct {
	opts    Options
	state   *state
	search  *searcher
	http    *http.Server
	servers *http.Client // calls the servers' control APIs
	auditor auditor
	guard   *access.Guard
	self    controltoken.Incarnation
	wake    chan struct{} // capacity 1: tells monitor that there may be an earlier deadline
	better  chan struct{} // capacity 1: tells mover that offers have become better
	taken   chan struct{} // capacity 1: tells warmer that a pool may lack a VM
	serving chan struct{} // closed by Serve
	filling sync.Mutex    // held while a warm pool is filled
	rate    rate          // at which memory leaves a VM
	counts  counts

	ctx    context.Context // ends at Close
	cancel context.CancelCauseFunc

	// work counts the calls that change something, and the loops. It is increased under mu
	// while the manager is open, so that Close can wait for it.
	work sync.WaitGroup

	mu     sync.Mutex // guards closed and url
	closed bool
	url    string
}

// errClosing is the error of calls while the manager closes.
var errClosing = connect.NewError(connect.CodeUnavailable, errors.New("manager is closing"))

// New returns a manager whose loops run but which is not served yet: see Serve and
// Handler. Errors of the state directory are [catalog.ErrInUse], [catalog.ErrCorrupt],
// [catalog.ErrFormat], and those of the file system. A model of another transport is an
// [allocator.ErrTransport].
func New(opts Options) (*Manager, error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	search, err := newSearcher(&opts)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		opts: opts, search: search, url: opts.URL, rate: rate{bytes: opts.MigrationRate},
		wake: make(chan struct{}, 1), better: make(chan struct{}, 1), taken: make(chan struct{}, 1), serving: make(chan struct{}),
	}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	m.servers = api.HTTPClient
	if opts.ServerTLS != nil {
		m.servers = api.NewHTTPClient(opts.ServerTLS)
	}
	m.guard = &access.Guard{Tokens: opts.Tokens, Now: opts.now}
	m.http = api.NewHTTPServer(m.Handler(), opts.Logger)
	m.http.TLSConfig = opts.TLS
	if opts.Allocator != nil {
		opts.Allocator.Attach(host{m})
	}
	if err = m.checkWarm(); err == nil {
		err = m.open()
	}
	if err != nil {
		m.cancel(err)
		return nil, fmt.Errorf("manager: %w", err)
	}
	m.gauge()
	m.work.Go(m.monitor)
	if opts.Economy.Every > 0 {
		m.work.Go(m.mover)
	}
	if opts.Allocator != nil && len(opts.Warm) > 0 {
		m.work.Go(m.warmer)
	}
	return m, nil
}

// maxMessage bounds the bytes of one request.
const maxMessage = 64 << 10

// Handler returns a handler of the control API in Connect, gRPC, gRPC-Web and JSON. gRPC
// needs a server with HTTP/2, as Serve's. JSON with an unknown field is refused.
func (m *Manager) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(managerv1connect.NewManagerServiceHandler(service{m: m},
		connect.WithReadMaxBytes(maxMessage), connect.WithInterceptors(m.guard), strictjson.Option()))
	m.health(mux)
	return mux
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
	m.mu.Unlock()
	if m.state.store == nil {
		m.opts.Logger.Info("catalog is in memory: a restart forgets all caches")
	} else if err := m.keepSetting(); err != nil {
		return fmt.Errorf("manager: %w", errors.Join(err, ln.Close()))
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
	m.work.Wait()
	m.servers.CloseIdleConnections()
	if m.opts.Allocator != nil {
		err = errors.Join(err, m.opts.Allocator.Close())
	}
	if m.state.store != nil {
		err = errors.Join(err, m.state.store.Close())
	}
	if err != nil {
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

// enter begins a call that changes something, and leave ends it. The returned context ends
// with the manager.
func (m *Manager) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, errClosing
	}
	if m.ctx.Err() != nil { // the catalog cannot be written
		return nil, nil, api.Refuse(connect.CodeUnavailable, context.Cause(m.ctx))
	}
	m.work.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(m.ctx, func() { cancel(context.Cause(m.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
		m.work.Done()
	}, nil
}

// monitor calls expire at each deadline. If it was delayed, by a process that stood still or
// by a wait for the state's lock, it postpones the deadlines of heartbeats and leases.
func (m *Manager) monitor() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		asked := time.Now() // before waiting for the state's lock, as calls do
		wait := m.untilNextCheck()
		timer.Reset(wait)
		due := false
		select {
		case <-timer.C:
			due = true
		case <-m.wake:
		case <-m.ctx.Done():
			return
		}
		if late := time.Since(asked) - wait; late > m.opts.Heartbeat {
			m.opts.Logger.Warn("manager was delayed: heartbeats and leases get more time", "for", late)
			m.state.postpone(late)
		}
		if due {
			now := m.opts.now()
			m.work.Go(func() { m.expire(now) }) // it may wait for a server
		}
	}
}

// untilNextCheck returns the time until the next deadline that monitor has to check.
func (m *Manager) untilNextCheck() time.Duration {
	wait := m.opts.Heartbeat
	if m.opts.Lease > 0 {
		wait = min(wait, m.opts.Lease)
	}
	if next, ok := m.state.nextLeave(); ok {
		wait = min(wait, next.Sub(m.opts.now()))
	}
	return max(wait, minCheck)
}

// minCheck is the minimum of monitor's interval, while a VM takes time to fail.
const minCheck = time.Millisecond

// terminateTimeout bounds the release of one VM's memory. A server that does not answer in
// this time fails, unless it sends heartbeats: see silence.go.
const terminateTimeout = 5 * time.Second

// fail marks a VM as lost, or only one incarnation of it: its caches are told, and if the
// allocator launched it, it is terminated.
func (m *Manager) fail(id string, only *vm, reason string) {
	v, _ := m.state.fail(id, only, reason) // the manager ends if the store does
	if v == nil {
		return // it was lost before
	}
	m.counts.note(func(n *Metrics) { n.Failed++ })
	m.opts.Logger.Warn("VM failed", "vm", v.id, "reason", reason)
	if v.launched {
		ctx, cancel := context.WithTimeout(context.Background(), terminateTimeout)
		defer cancel()
		m.terminate(ctx, v.id)
	}
}

// terminate terminates a VM that was launched. There is no allocator if the catalog is
// that of a manager that had one.
func (m *Manager) terminate(ctx context.Context, id string) {
	if m.opts.Allocator == nil {
		return
	}
	if err := m.opts.Allocator.Terminate(ctx, id); err != nil {
		m.opts.Logger.Error("VM not terminated", "vm", id, "err", err)
	}
}

// maxReasonLen bounds the reason of a reclaim, in bytes.
const maxReasonLen = 1 << 10

// reclaim announces that a VM is taken back at a deadline: its caches are told, no more of
// its memory is granted, and at the deadline it fails. It returns the earliest deadline
// that was announced, which holds.
func (m *Manager) reclaim(id string, deadline time.Time, reason string) (time.Time, error) {
	deadline, err := m.state.reclaim(id, deadline, reason)
	if err != nil {
		return deadline, err
	}
	m.counts.note(func(n *Metrics) { n.Reclaimed++ })
	m.opts.Logger.Warn("VM is reclaimed", "vm", id, "deadline", deadline, "reason", reason)
	wake(m.wake)
	return deadline, nil
}

// wake wakes the receiver of a channel of capacity 1, unless it has a wake-up pending.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
