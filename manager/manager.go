package manager

import (
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

// Manager allocates remote memory and watches over it. Its methods are safe for
// concurrent use.
type Manager struct {
	opts    Options
	state   *state
	search  *searcher
	http    *http.Server
	servers *http.Client // calls the servers' control APIs
	auditor auditor
	guard   *access.Guard
	self    controltoken.Incarnation
	wake    chan struct{} // has room for one: the monitor has to look at its deadlines
	better  chan struct{} // has room for one: offers have become better
	taken   chan struct{} // has room for one: a pool may lack a VM
	serving chan struct{} // closed by Serve
	filling sync.Mutex    // of the pools
	rate    rate          // of memory that leaves a VM
	counts  counts

	ctx    context.Context // ends at Close
	cancel context.CancelCauseFunc

	// work counts the calls that change something, and the monitor. It is raised
	// under mu while the manager is open, so that Close can wait for it.
	work sync.WaitGroup

	mu     sync.Mutex
	closed bool
	url    string
}

// errClosing is what calls end with while the manager closes.
var errClosing = connect.NewError(connect.CodeUnavailable, errors.New("manager is closing"))

// New returns a manager that is watching its VMs but not served yet: see Serve
// and Handler. Errors of the state directory are [catalog.ErrInUse], [catalog.ErrCorrupt],
// [catalog.ErrFormat], and those of the file system; [allocator.ErrTransport] says that a model is
// of another transport.
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

// Handler serves the control API in Connect, gRPC, gRPC-Web and JSON. gRPC needs
// a server that speaks HTTP/2, as Serve does. JSON with a field that is not known is
// refused.
func (m *Manager) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(managerv1connect.NewManagerServiceHandler(service{m: m},
		connect.WithReadMaxBytes(maxMessage), connect.WithInterceptors(m.guard), strictjson.Option()))
	m.health(mux)
	return mux
}

// Serve answers at ln until Close, and then returns nil. It returns an error earlier
// if the catalog cannot be written any more, or at once if it is that of a manager at
// another URL ([ErrStateAddress]). It is called once.
func (m *Manager) Serve(ln net.Listener) error {
	m.mu.Lock()
	if m.url == "" {
		m.url = m.scheme() + reachable(ln.Addr().String())
	}
	m.mu.Unlock()
	if m.state.store == nil {
		m.opts.Logger.Info("catalog is in memory: a restart forgets all caches")
	} else if err := m.keepSetting(); err != nil {
		return fmt.Errorf("manager: %w", errors.Join(err, ln.Close()))
	}
	serve := m.http.Serve
	if m.opts.TLS != nil {
		serve = func(ln net.Listener) error { return m.http.ServeTLS(ln, "", "") }
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

// reachable turns the address of a listener on all interfaces into one that can
// be dialled on this machine.
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

// Serving is closed when Serve has begun to answer.
func (m *Manager) Serving() <-chan struct{} { return m.serving }

func (m *Manager) scheme() string {
	if m.opts.TLS != nil {
		return "https://"
	}
	return "http://"
}

// URL is where servers and clients on this machine reach the manager; empty
// before Serve where Options do not state it.
func (m *Manager) URL() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.url
}

// Close ends all calls and watches, then closes the allocator, which terminates
// the VMs that it launched and that cannot outlive it. Clients that are not through
// when ctx ends are cut off. Closing again does nothing.
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

// shut lets nothing in any more. It returns false where that was done before.
func (m *Manager) shut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := !m.closed
	m.closed = true
	return open
}

// enter lets a call in that changes something. The call's context ends with the
// manager; the caller calls leave when it is through.
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

// monitor fails the servers that have gone silent and the VMs whose notice is
// up, and ends leases.
func (m *Manager) monitor() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		asked := time.Now() // before the catalog's lock is waited for: so do all calls then
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
			m.opts.Logger.Warn("manager stood still", "for", late)
			m.state.postpone(late)
		}
		if due {
			now := m.opts.now()
			m.work.Go(func() { m.expire(now) }) // which may wait for a server
		}
	}
}

// untilNextCheck is short enough for no notice to be overrun.
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

// minCheck keeps the monitor from spinning at a VM that takes time to fail.
const minCheck = time.Millisecond

// terminateTimeout bounds the release of one VM. A server that does not answer in this
// time is failed, unless it is expected to send heartbeats: then sight.go decides.
const terminateTimeout = 5 * time.Second

// failID is fail for a VM that is named.
func (m *Manager) failID(id, reason string) {
	v, _ := m.state.fail(id, nil, reason) // the manager ends if the store does
	m.failed(v, reason)
}

// fail takes a VM for lost: its caches are told, and what is left of it is
// terminated where the allocator launched it.
func (m *Manager) fail(v *vm, reason string) {
	v, _ = m.state.fail(v.id, v, reason)
	m.failed(v, reason)
}

// failed follows what the catalog knows; nil is a VM that it has lost before.
func (m *Manager) failed(v *vm, reason string) {
	if v == nil {
		return
	}
	m.counts.note(func(n *Metrics) { n.Failed++ })
	m.opts.Logger.Warn("VM is gone", "vm", v.id, "reason", reason)
	if v.launched {
		ctx, cancel := context.WithTimeout(context.Background(), terminateTimeout)
		defer cancel()
		m.terminate(ctx, v.id)
	}
}

// terminate ends a VM that was launched. There may be no allocator any more that
// could: the catalog can be that of a manager that had one.
func (m *Manager) terminate(ctx context.Context, id string) {
	if m.opts.Allocator == nil {
		return
	}
	if err := m.opts.Allocator.Terminate(ctx, id); err != nil {
		m.opts.Logger.Error("VM not terminated", "vm", id, "err", err)
	}
}

// maxReasonLen bounds what is said of it, in bytes.
const maxReasonLen = 1 << 10

// reclaim announces that a VM goes at a deadline: its caches are told, nobody is
// given memory of it any more, and when the time is up it is failed. A deadline
// that was announced before and is no later holds; it returns the one that does.
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

// wake leaves a token for who waits at a channel that has room for one. If one is
// there already, who waits has yet to look.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
