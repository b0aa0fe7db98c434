package proxy

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

	"github.com/redykv/redykv/manager/access"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/redytier"
)

// MinMemory is the least Options.Memory: one buffer.
const MinMemory = pieceSize

// Defaults of Options.
const (
	DefaultMemory        = 64 << 20
	DefaultMaxCaches     = 64
	DefaultMaxRequests   = 1024
	DefaultTimeout       = 30 * time.Second
	DefaultCreateTimeout = 10 * time.Minute
)

// Options of a Proxy.
type Options struct {
	// Base is the configuration of caches that requests do not set: FabricTLS, Machine, Net,
	// Transport and so on.
	Base redytier.Config
	// Tokens returns the tokens of callers, which need the role client or operator; it is
	// called for each request. nil: every caller may do everything.
	Tokens func() *access.TokenSet
	// TLS, if set, encrypts the API.
	TLS *tls.Config
	// Memory bounds the bytes on their way between callers and caches; at least MinMemory.
	// Default: DefaultMemory.
	Memory int64
	// MaxCaches bounds the caches that exist at a time. Default: DefaultMaxCaches.
	MaxCaches int
	// MaxRequests bounds the requests at a time. Further ones get 503. Default:
	// DefaultMaxRequests.
	MaxRequests int
	// Timeout bounds the time of each piece of bytes at the cache, and at the caller. Default:
	// DefaultTimeout.
	Timeout time.Duration
	// CreateTimeout bounds the time in which VMs for a cache start. Default:
	// DefaultCreateTimeout.
	CreateTimeout time.Duration
	// Logger receives messages for operators. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) ensureDefaults() error {
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.MaxCaches = cmp.Or(o.MaxCaches, DefaultMaxCaches)
	o.MaxRequests = cmp.Or(o.MaxRequests, DefaultMaxRequests)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.CreateTimeout = cmp.Or(o.CreateTimeout, DefaultCreateTimeout)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	switch {
	case o.Memory < MinMemory || o.Memory/pieceSize > maxPieces:
		return fmt.Errorf("proxy: Options.Memory %d: want %d to %d", o.Memory, MinMemory, int64(maxPieces)*pieceSize)
	case o.MaxCaches < 0 || o.MaxRequests < 0 || o.Timeout < 0 || o.CreateTimeout < 0:
		return fmt.Errorf("proxy: Options.MaxCaches %d, MaxRequests %d, Timeout %v, CreateTimeout %v: want nothing negative",
			o.MaxCaches, o.MaxRequests, o.Timeout, o.CreateTimeout)
	}
	return nil
}

// Proxy serves the caches that it has created. Its methods are safe for concurrent use.
type Proxy struct {
	mgr     redytier.Manager
	opts    Options
	log     *slog.Logger
	guard   *access.Guard
	pieces  *pieces
	running chan struct{} // holds one token for each request
	counts  counters
	http    *http.Server

	ending   context.Context // ends with Close: no cache is created any more
	end      context.CancelFunc
	creating sync.WaitGroup // calls of redytier.Create

	mu     sync.Mutex        // guards the fields below
	caches map[string]*cache // by id
	claims int               // caches that are being created
	closed bool
}

// New returns a proxy that serves nothing yet. The caller closes it.
func New(mgr redytier.Manager, opts Options) (*Proxy, error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	p := &Proxy{
		mgr: mgr, opts: opts, log: opts.Logger.With("component", "proxy"),
		guard:  &access.Guard{Tokens: opts.Tokens, Now: time.Now},
		pieces: newPieces(int(opts.Memory / pieceSize)), running: make(chan struct{}, opts.MaxRequests),
		caches: make(map[string]*cache),
	}
	p.ending, p.end = context.WithCancel(context.Background())
	p.http = api.NewHTTPServer(p.Handler(), opts.Logger)
	p.http.TLSConfig = opts.TLS
	api.BoundWaiting(p.http, opts.MaxRequests)
	return p, nil
}

// Serve serves ln until Close, and then returns nil.
func (p *Proxy) Serve(ln net.Listener) error {
	serve := p.http.Serve
	if p.opts.TLS != nil {
		serve = func(ln net.Listener) error { return p.http.ServeTLS(ln, "", "") }
	}
	if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("proxy: serve at %v: %w", ln.Addr(), err)
	}
	return nil
}

// Close waits for requests until ctx ends, cuts off the rest, and deletes all caches, for which
// it takes deleteTimeout at most. The error names the caches that are not deleted: the manager
// deallocates these when their leases end.
func (p *Proxy) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	if err := p.http.Shutdown(ctx); err != nil {
		p.log.Warn("requests were cut off", "err", err)
		_ = p.http.Close() // of the listeners, which Shutdown has closed
	}
	p.creating.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	all := p.list()
	failed := make([]error, len(all))
	var deleting sync.WaitGroup
	for i, c := range all {
		deleting.Go(func() {
			if err := c.redy.Delete(ctx); err != nil && !errors.Is(err, redytier.ErrDeleted) {
				failed[i] = fmt.Errorf("proxy: cache %s is not deleted; its memory is returned when its lease ends: %w", c.id, err)
			}
		})
	}
	deleting.Wait()
	return errors.Join(failed...)
}
