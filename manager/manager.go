package manager

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/internal/api/strictjson"
	"github.com/redykv/redykv/manager/model"
)

// Options say where a manager's VMs come from and how it watches them.
type Options struct {
	// Allocator launches VMs where the pool of registered servers does not
	// hold a cache. The manager owns it and closes it. nil: the pool is all
	// there is (stranded memory).
	Allocator Allocator
	// Transport is used for requests that name none. Default: the allocator's;
	// tcp without one.
	Transport string
	// VMMemory is the most memory in bytes of one launched VM; a larger cache
	// gets several. Default: no limit.
	VMMemory uint64
	// URL is where servers and clients reach this manager. Default: the address
	// given to Serve.
	URL string
	// State is the directory in which the manager keeps its catalog, so that
	// another one can go on where this one ends. It is made if it does not exist.
	// Default: none; what the manager knows ends with it.
	State string
	// Moved has Serve go on although what State knows calls a manager at another URL: a
	// server that is not heard, and a cache whose client is not, is lost then. Default:
	// that is an [ErrStateAddress], and nothing is lost.
	Moved bool
	// TLS is how the control API is served; its certificates are as net/http wants
	// them. Default: not secured.
	TLS *tls.Config
	// Tokens are those that let callers in, asked for with each call; nil: whoever
	// reaches the control API may call it.
	Tokens func() []Token
	// ServerTLS is how the control APIs of servers are called that have TLS
	// (NodeOptions.ControlTLS). Default: by the certificates that the system trusts.
	ServerTLS *tls.Config
	// Access is what launched servers need beside a token, of which the manager gives
	// each its own: how they know the manager, and what they show it.
	Access Access
	// LaunchTimeout bounds how long a launched VM may take to register.
	// Default: 30 s.
	LaunchTimeout time.Duration
	// Provision is how long a new VM takes until it can hold memory: part of the
	// notice of a spot VM (A28). Default: 2 s, plenty for a process.
	Provision time.Duration
	// MigrationRate is how many bytes a second leave a VM that is reclaimed, until
	// caches have reported what they measured. Default: what New measures, where the
	// allocator's VMs are of this machine and some are spot VMs; else it is not known,
	// and no spot VM is used until a cache has reported.
	MigrationRate float64
	// NoticeMargin is what is kept of a notice for whatever else takes time. Default:
	// 5 s.
	NoticeMargin time.Duration
	// MinLifetime is how long a spot VM has to be expected to live. Default: 2 min.
	MinLifetime time.Duration
	// Economy says when caches move to other VMs although theirs are still there.
	Economy Economy
	// Warm are VMs that are kept ready as targets of migrations. Default: none.
	Warm []WarmPool
	// Predictor says how long spot VMs are expected to live. Default: NewPredictor.
	Predictor Predictor
	// Heartbeat is how often registered servers have to call. Default: 1 s.
	Heartbeat time.Duration
	// Silence is how long a registered server may stay silent before it is
	// taken for failed. Default: 5 heartbeats.
	Silence time.Duration
	// Lease is how long a cache lives that is not renewed; negative: until it is
	// deallocated. Default: 30 s.
	Lease time.Duration
	// EnforceDuration has caches deallocated that are older than they were expected to
	// become. Default: they live on; their duration says only which VMs they may have.
	EnforceDuration bool
	// Models are searched for configurations that meet an SLO, before those that come
	// with the program. They have to be of Transport.
	Models []*model.Model
	// SLOMargin is how much better than an SLO a configuration has to be predicted, as
	// a part of each of its bounds; negative: not at all. Default: DefaultSLOMargin.
	SLOMargin float64
	// Logger receives what an operator should know. Default: slog.Default().
	Logger *slog.Logger

	now   func() time.Time // for tests
	store store            // for tests, in the place of State
}

func (o *Options) ensureDefaults() error {
	if o.Transport == "" {
		o.Transport = "tcp"
		if o.Allocator != nil {
			o.Transport = o.Allocator.Transport()
		}
	}
	if o.LaunchTimeout == 0 {
		o.LaunchTimeout = 30 * time.Second
	}
	o.Provision = cmp.Or(o.Provision, 2*time.Second)
	o.NoticeMargin = cmp.Or(o.NoticeMargin, 5*time.Second)
	o.MinLifetime = cmp.Or(o.MinLifetime, 2*time.Minute)
	if o.Predictor == nil {
		o.Predictor = NewPredictor()
	}
	if err := o.Economy.ensureDefaults(); err != nil {
		return err
	}
	if o.SLOMargin = max(0, cmp.Or(o.SLOMargin, DefaultSLOMargin)); !(o.SLOMargin <= MaxSLOMargin) {
		return fmt.Errorf("manager: SLO margin %v: want at most %v", o.SLOMargin, MaxSLOMargin)
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = time.Second
	}
	if o.Silence == 0 {
		o.Silence = 5 * o.Heartbeat
	}
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.now == nil {
		o.now = time.Now
	}
	if !(o.MigrationRate >= 0 && o.MigrationRate <= maxVMMemory) {
		return fmt.Errorf("manager: migration rate %v: want 0 (not known) to %v bytes a second", o.MigrationRate, uint64(maxVMMemory))
	}
	if o.Lease > 0 && o.Lease < time.Millisecond {
		return fmt.Errorf("manager: lease %v: want 1ms or more", o.Lease)
	}
	if o.LaunchTimeout < 0 || o.Heartbeat < time.Millisecond || o.Silence < o.Heartbeat {
		return fmt.Errorf("manager: launch timeout %v, heartbeat %v, silence %v: want a heartbeat of 1ms or more and a silence not below it", o.LaunchTimeout, o.Heartbeat, o.Silence)
	}
	o.Logger = o.Logger.With("component", "manager")
	return nil
}

// Manager allocates remote memory and watches over it. Its methods are safe for
// concurrent use.
type Manager struct {
	opts    Options
	catalog *catalog
	search  *searcher
	http    *http.Server
	servers *http.Client // calls the servers' control APIs
	auditor auditor
	guard   *guard
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
// and Handler. Errors of the state directory are [ErrStateInUse], [ErrStateCorrupt],
// [ErrStateFormat], and those of the file system; [ErrTransport] says that a model is
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
	m.servers = httpClient
	if opts.ServerTLS != nil {
		m.servers = newHTTPClient(opts.ServerTLS)
	}
	m.guard = &guard{tokens: opts.Tokens, now: opts.now}
	m.http = newHTTPServer(m.Handler(), opts.Logger)
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
	if m.catalog.store == nil {
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
// the VMs that it launched and that cannot outlive it. Clients that are not through when ctx ends are cut off. Closing
// again does nothing.
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
	if m.catalog.store != nil {
		err = errors.Join(err, m.catalog.store.close())
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
		return nil, nil, refuse(connect.CodeUnavailable, context.Cause(m.ctx))
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
			m.catalog.postpone(late)
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
	if next, ok := m.catalog.nextLeave(); ok {
		wait = min(wait, next.Sub(m.opts.now()))
	}
	return max(wait, minCheck)
}

// minCheck keeps the monitor from spinning at a VM that takes time to fail.
const minCheck = time.Millisecond

// terminateTimeout bounds the release of one VM: a server that does not answer
// in this time is taken for failed, unless heartbeats say whether it is well.
const terminateTimeout = 5 * time.Second

// failID is fail for a VM that is named.
func (m *Manager) failID(id, reason string) {
	v, _ := m.catalog.fail(id, nil, reason) // the manager ends if the store does
	m.failed(v, reason)
}

// fail takes a VM for lost: its caches are told, and what is left of it is
// terminated where the allocator launched it.
func (m *Manager) fail(v *vm, reason string) {
	v, _ = m.catalog.fail(v.id, v, reason)
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

// MaxNotice is the longest notice of a VM that is reclaimed.
const MaxNotice = 30 * 24 * time.Hour

// maxReasonLen bounds what is said of it, in bytes.
const maxReasonLen = 1 << 10

// reclaim announces that a VM goes at a deadline: its caches are told, nobody is
// given memory of it any more, and when the time is up it is failed. A deadline
// that was announced before and is no later holds; it returns the one that does.
func (m *Manager) reclaim(id string, deadline time.Time, reason string) (time.Time, error) {
	deadline, err := m.catalog.reclaim(id, deadline, reason)
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

// host is the manager as its allocator sees it.
type host struct{ m *Manager }

func (h host) URL() string { return h.m.URL() }
func (h host) Access(vm string) Access {
	a := h.m.opts.Access
	if h.m.guard.tokens != nil {
		a.Token = h.m.guard.launchedToken(vm)
	}
	return a
}
func (h host) Failed(id, reason string) {
	h.whileOpen(func() { h.m.failID(id, reason) })
}
func (h host) Reclaimed(id string, deadline time.Time, reason string) {
	h.whileOpen(func() {
		h.m.observe(h.m.catalog.up(id), true)
		_, _ = h.m.reclaim(id, deadline, reason) // a VM that is not there does not have to go
	})
}
func (h host) OffersChanged() { wake(h.m.better) }
func (h host) Register(v VM) error {
	v.Started = h.m.opts.now()
	if err := v.check(); err != nil {
		return err
	}
	err := error(errClosing)
	h.whileOpen(func() { err = h.m.catalog.register(v, time.Time{}) })
	return err
}

// whileOpen does something unless the manager closes: what happens to VMs then is
// found out by the next one.
func (h host) whileOpen(do func()) {
	h.m.mu.Lock()
	if h.m.closed {
		h.m.mu.Unlock()
		return
	}
	h.m.work.Add(1)
	h.m.mu.Unlock()
	defer h.m.work.Done()
	do()
}
