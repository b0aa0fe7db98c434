package redytier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

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
	controlURL string
	transport  string
	fabricAddr string
	distance   int    // to the VM in switches; 0: unknown
	size       uint64 // of its regions
	ticket     redywire.Ticket
	tokens     []fabric.Token // of its regions, by the server's index
	tuning     Tuning
	http       *http.Client  // for the server's control API
	timeout    time.Duration // Config.ServerTimeout

	signed    atomic.Pointer[managerv1.Grant]    // as last received from the manager: terms and token
	regions   atomic.Uint32                      // lent; fewer than tokens after a release
	change    atomic.Uint64                      // number of the last Configure call
	unsettled atomic.Int32                       // failed connections that the server may not have ended yet
	checking  atomic.Pointer[context.CancelFunc] // ends the check of a suspected server; nil: none is suspected

	suspicion chan struct{} // holds a token when the manager suspects the server again

	// lost is the cause of the loss of the grant's regions, or nil. It is set once and
	// never cleared: lost bytes do not come back.
	lost atomic.Pointer[error]
}

// endpoint is a grant with the rings of the connections to it. Another configuration means
// another endpoint.
type endpoint struct {
	grant *grant
	fill  int // requests of a full batch
	batch int // requests that a ring's slot has room for; 1: no rings
	depth int
}

func newEndpoint(g *grant, c Configuration) *endpoint {
	return &endpoint{grant: g, fill: c.BatchSize, batch: g.ringed(c).BatchSize, depth: c.QueueDepth}
}

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
	g := &grant{
		id: share.GetId(), cache: cache, vm: share.GetVm().GetId(),
		controlURL: share.GetVm().GetControlUrl(), size: uint64(cfg.RegionSize), distance: int(share.GetVm().GetDistance()), tuning: cfg.Tuning,
		http: cfg.control, timeout: cfg.ServerTimeout, suspicion: make(chan struct{}, 1),
	}
	g.signed.Store(share)
	mine := c.share(int(share.GetRegions()), of)
	mine.ServerThreads = min(mine.ServerThreads, int(share.GetTerms().GetCores()))
	var answer *connect.Response[serverv1.ConnectResponse]
	err := g.whileAlive(ctx, func(ctx context.Context) (err error) {
		answer, err = g.control().Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{
			Terms: share.GetTerms(), Token: share.GetToken(), Configuration: g.ringed(mine).proto(),
		}))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to VM %s at %s: %w", g.vm, g.controlURL, serverError{err})
	}
	if err := g.accept(answer.Msg, int(share.GetRegions())); err != nil {
		return nil, errors.Join(err, disconnectAll(ctx, []*grant{g}))
	}
	return g, nil
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
	return nil
}

// connectGrants is connectGrant for several grants. If one fails, all are returned.
func connectGrants(ctx context.Context, cache string, cfg *Config, shares []*managerv1.Grant, c Configuration, of int) (grants []*grant, err error) {
	for _, share := range shares {
		g, err := connectGrant(ctx, cache, cfg, share, c, of)
		if err != nil {
			return nil, errors.Join(err, disconnectAll(ctx, grants))
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// share returns the configuration of a VM that holds some of a cache's regions. It runs its
// part of the server threads, rounded up (A17); every client thread connects to it.
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
func disconnectAll(ctx context.Context, grants []*grant) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlTimeout)
	defer cancel()
	for _, g := range grants {
		if g.lost.Load() == nil {
			err = errors.Join(err, g.disconnect(ctx))
		}
	}
	return err
}

// configure sets the grant's configuration at the server. A server refuses a checked
// configuration only for lack of processors. The caller holds the turn, so calls are made in
// the order of their numbers.
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

// release returns all regions but the first keep. The caller holds the turn, and the table
// does not use the others.
func (g *grant) release(ctx context.Context, keep uint32) error {
	lent := g.regions.Swap(keep) // first: so that no connection imports them
	_, err := g.control().Release(ctx, connect.NewRequest(&serverv1.ReleaseRequest{
		CacheId: g.cache, Grant: g.id, Ticket: g.ticket[:], Keep: keep,
	}))
	if err != nil {
		g.regions.Store(lent)
		return fmt.Errorf("release regions of VM %s: %w", g.vm, err)
	}
	return nil
}
