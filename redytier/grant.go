package redytier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// grant is one loan of a server's memory to the cache. The cache may have several grants of
// one server. Only the atomic fields change.
type grant struct {
	id         string // unique within the cache
	cache      string
	vm         string
	start      uint64 // number of the server's incarnation; 0: not known
	controlURL string
	transport  string
	fabricAddr string
	distance   int    // to the VM in switches; 0: unknown
	size       uint64 // of its regions
	ticket     redywire.Ticket
	tokens     []fabric.Token // of its regions, by the server's index
	lived      []atomic.Bool  // by index: see hasLived
	placed     atomic.Bool    // a region has had its place here
	// sources are the servers from which the manager lets this one copy, by fabric address.
	sources   map[string]*managerv1.PullSource
	tuning    Tuning
	http      *http.Client  // for the server's control API
	timeout   time.Duration // Config.ServerTimeout
	reconnect time.Duration // reconnectTimeout

	signed     atomic.Pointer[managerv1.Grant]    // as last received from the manager: terms and token
	regions    atomic.Uint32                      // lent; fewer than tokens after a release
	unreleased atomic.Bool                        // the server may not have got the others back
	change     atomic.Uint64                      // number of the last Configure call
	fills      atomic.Uint32                      // regionWriters that fill, so far
	unsettled  atomic.Int32                       // failed connections that the server may not have ended yet
	checking   atomic.Pointer[context.CancelFunc] // ends the check of a suspected server; nil: none is suspected

	suspicion chan struct{} // holds a token when the manager suspects the server again

	// lost is the cause of the loss of the grant's regions, or nil. The controller sets it once,
	// just before it publishes the table that has no regions there: sessions that find that
	// table find the cause. It is never cleared: lost bytes do not come back.
	lost atomic.Pointer[error]
}

// endpoint is a grant with the rings of the connections to it. Another configuration means
// another endpoint.
type endpoint struct {
	grant   *grant
	fill    int // requests of a full batch
	batch   int // requests that a ring's slot has room for; 1: no rings
	depth   int
	removed atomic.Bool // for ever: connections to it are closed
}

func newEndpoint(g *grant, c Configuration) *endpoint {
	return &endpoint{grant: g, fill: c.BatchSize, batch: g.ringed(c).BatchSize, depth: c.QueueDepth}
}

// ringed reports whether connections to the endpoint have rings.
func (e *endpoint) ringed() bool { return e.batch > 1 }

// ringed returns the configuration for the server. Two-sided batches of one use rings for
// two, because batches of one mean one-sided access to a server.
func (g *grant) ringed(c Configuration) Configuration {
	if g.tuning.TwoSided {
		c.BatchSize = max(c.BatchSize, 2)
	}
	return c
}

// connectGrant asks a grant's server for its regions (R33). c is the configuration of the
// whole cache, which has as many regions as of.
func connectGrant(ctx context.Context, cache string, cfg *Config, share *managerv1.Grant, c Configuration, of int) (*grant, error) {
	g := newGrant(cache, cfg, share)
	answer, err := g.connect(ctx, share, c, of, false)
	if err != nil {
		return nil, err
	}
	if err := g.accept(answer, int(share.GetRegions())); err != nil {
		return nil, errors.Join(err, disconnectAll(ctx, []*grant{g}))
	}
	return g, nil
}

// newGrant returns a grant that is not connected yet.
func newGrant(cache string, cfg *Config, share *managerv1.Grant) *grant {
	g := &grant{
		id: share.GetId(), cache: cache, vm: share.GetVm().GetId(), start: share.GetVm().GetStart(),
		controlURL: share.GetVm().GetControlUrl(), size: uint64(cfg.RegionSize), distance: int(share.GetVm().GetDistance()), tuning: cfg.Tuning,
		http: cfg.control, timeout: cfg.ServerTimeout, reconnect: cfg.reconnect, suspicion: make(chan struct{}, 1),
	}
	g.signed.Store(share)
	return g
}

// connect calls Connect, for new memory or to take up what another client had.
func (g *grant) connect(ctx context.Context, share *managerv1.Grant, c Configuration, of int, takeUp bool) (*serverv1.ConnectResponse, error) {
	mine := c.share(int(share.GetRegions()), of)
	mine.ServerThreads = min(mine.ServerThreads, int(share.GetTerms().GetCores()))
	var answer *connect.Response[serverv1.ConnectResponse]
	err := g.whileAlive(ctx, func(ctx context.Context) (err error) {
		answer, err = g.control().Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{
			Terms: share.GetTerms(), Token: share.GetToken(), Configuration: g.ringed(mine).proto(), TakeUp: takeUp,
		}))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to VM %s at %s: %w", g.vm, g.controlURL, serverError{err})
	}
	return answer.Msg, nil
}

// accept checks and stores a server's answer.
func (g *grant) accept(m *serverv1.ConnectResponse, regions int) error {
	g.fabricAddr, g.transport = m.FabricAddr, m.Transport
	bad := len(m.RegionTokens) != regions || len(m.Ticket) != redywire.TicketSize
	for _, token := range m.RegionTokens {
		if len(token) != len(fabric.Token{}) {
			bad = true
			break
		}
		g.tokens = append(g.tokens, fabric.Token(token))
	}
	if bad {
		return fmt.Errorf("VM %s answers with %d tokens for %d regions and a ticket of %d bytes",
			g.vm, len(m.RegionTokens), regions, len(m.Ticket))
	}
	g.ticket = redywire.Ticket(m.Ticket)
	g.regions.Store(uint32(regions))
	g.lived = make([]atomic.Bool, regions)
	return nil
}

// serversAtOnce bounds the servers that a cache calls, or connects to, at the same time.
const serversAtOnce = 16

// forEach calls f with 0 to n-1, serversAtOnce at a time, and joins the errors.
func forEach(n int, f func(i int) error) error {
	var calls errgroup.Group
	calls.SetLimit(serversAtOnce)
	errs := make([]error, n)
	for i := range n {
		calls.Go(func() error {
			errs[i] = f(i)
			return nil
		})
	}
	_ = calls.Wait() // the errors are in errs
	return errors.Join(errs...)
}

// connectGrants is connectGrant for several grants. If one fails, all are returned.
func connectGrants(ctx context.Context, cache string, cfg *Config, shares []*managerv1.Grant, c Configuration, of int) ([]*grant, error) {
	grants := make([]*grant, len(shares))
	var failed atomic.Bool // calls that run are not ended: their servers may have lent regions already
	err := forEach(len(shares), func(i int) (err error) {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case failed.Load():
			return nil
		}
		if grants[i], err = connectGrant(ctx, cache, cfg, shares[i], c, of); err != nil {
			failed.Store(true)
		}
		return err
	})
	if err != nil {
		connected := slices.DeleteFunc(grants, func(g *grant) bool { return g == nil })
		return nil, errors.Join(err, disconnectAll(ctx, connected))
	}
	return grants, nil
}

// most returns the configuration whose bounds are the greater ones of two. That of the zero Configuration and
// another is the other.
func (c Configuration) most(o Configuration) Configuration {
	return Configuration{
		ClientThreads: max(c.ClientThreads, o.ClientThreads),
		ServerThreads: max(c.ServerThreads, o.ServerThreads),
		BatchSize:     max(c.BatchSize, o.BatchSize),
		QueueDepth:    max(c.QueueDepth, o.QueueDepth),
	}
}

// share returns the configuration of a VM that holds some of a cache's regions. It runs its
// part of the server threads, rounded up (A17); every client thread may connect to it.
func (c Configuration) share(regions, of int) Configuration {
	if of > 0 {
		c.ServerThreads = min(c.ServerThreads, (c.ServerThreads*regions+of-1)/of)
	}
	return c
}

func (g *grant) control() serverv1connect.CacheServerServiceClient {
	return serverv1connect.NewCacheServerServiceClient(g.http, g.controlURL)
}

// disconnection returns the request that ends the grant.
func (g *grant) disconnection() *serverv1.DisconnectRequest {
	signed := g.signed.Load()
	req := &serverv1.DisconnectRequest{CacheId: g.cache, Grant: g.id, Terms: signed.GetTerms(), Token: signed.GetToken()}
	if g.ticket != (redywire.Ticket{}) {
		req.Ticket = g.ticket[:]
	}
	return req
}

// disconnect returns a grant's regions. It is no error if they are returned already.
func (g *grant) disconnect(ctx context.Context) error {
	err := g.whileAlive(ctx, func(ctx context.Context) error {
		_, err := g.control().Disconnect(ctx, connect.NewRequest(g.disconnection()))
		return err
	})
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		return fmt.Errorf("disconnect from VM %s: %w", g.vm, err)
	}
	return nil
}

// disconnectAll returns grants that are not lost, even if ctx has ended.
func disconnectAll(ctx context.Context, grants []*grant) error {
	ctx, cancel := finishing(ctx)
	defer cancel()
	return forEach(len(grants), func(i int) error {
		if grants[i].lost.Load() != nil {
			return nil
		}
		return grants[i].disconnect(ctx)
	})
}

// configure sets the grant's configuration at the server. A server refuses a checked
// configuration only for lack of processors. Only a task calls it, so calls are made in the
// order of their numbers.
func (g *grant) configure(ctx context.Context, c Configuration) error {
	signed := g.signed.Load()
	_, err := g.control().Configure(ctx, connect.NewRequest(&serverv1.ConfigureRequest{
		CacheId: g.cache, Grant: g.id, Ticket: g.ticket[:], Configuration: g.ringed(c).proto(),
		Terms: signed.GetTerms(), Token: signed.GetToken(), Change: g.change.Add(1),
	}))
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeResourceExhausted:
		return fmt.Errorf("configure VM %s: %w: %w", g.vm, ErrCores, err)
	}
	if err != nil {
		return fmt.Errorf("configure VM %s: %w", g.vm, err)
	}
	return nil
}

// setLived notes that a region has its place at an index from now on, or that it is about to be
// filled, or that this has failed.
func (g *grant) setLived(index uint32, lived bool) {
	if int(index) < len(g.lived) {
		g.lived[index].Store(lived)
	}
}

// hasLived reports whether a region has had its place at an index, and nothing but requests of
// sessions has written there since. Else a pull or a fill that has failed here may still run at the
// server, and overwrite what comes there next.
func (g *grant) hasLived(index uint32) bool {
	return int(index) < len(g.lived) && g.lived[index].Load()
}

// release returns all regions but the first keep. Only a task calls it, and the table does
// not use the others.
func (g *grant) release(ctx context.Context, keep uint32) error {
	g.regions.Store(keep) // first: so that no connection imports them
	g.unreleased.Store(true)
	err := g.whileAlive(ctx, func(ctx context.Context) error {
		_, err := g.control().Release(ctx, connect.NewRequest(&serverv1.ReleaseRequest{
			CacheId: g.cache, Grant: g.id, Ticket: g.ticket[:], Keep: keep,
		}))
		return err
	})
	if err != nil { // the server may have them back nevertheless
		return fmt.Errorf("release regions of VM %s: %w", g.vm, err)
	}
	g.unreleased.Store(false)
	return nil
}
