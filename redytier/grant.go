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

// grant is what one server lends to the cache under one ticket. A server that
// lends twice has two. Constant but for the atomic fields.
type grant struct {
	id         string // unique within the cache
	cache      string
	vm         string
	controlURL string
	granted    *managerv1.Grant // as the manager gave it
	transport  string
	fabricAddr string
	distance   int    // switches on the way there; 0: not known
	size       uint64 // of its regions
	ticket     redywire.Ticket
	tokens     []fabric.Token // of its regions, by the server's index
	tuning     Tuning
	http       *http.Client  // that calls the server's control API
	timeout    time.Duration // Config.ServerTimeout

	regions   atomic.Uint32 // lent; less than there are tokens after a release
	unsettled atomic.Int32  // connections that failed, and that the server may not know of yet
	suspected atomic.Bool   // it is being found out whether the server is there

	suspicion chan struct{} // holds a token when the manager says again that it does not hear the server

	// lost is why the grant's regions are gone; nil while they are not. It is set
	// once and never cleared: what was in them does not come back.
	lost atomic.Pointer[error]
}

// endpoint is a way to a grant's regions: what connections over it have for rings.
// Another configuration means another endpoint.
type endpoint struct {
	grant *grant
	fill  int // requests after which a batch is full
	batch int // those that rings are made for; 1: no rings
	depth int
}

func newEndpoint(g *grant, c Configuration) *endpoint {
	return &endpoint{grant: g, fill: c.BatchSize, batch: g.ringed(c).BatchSize, depth: c.QueueDepth}
}

// ringed is a configuration as the server is told of it. Rings for batches of one
// are made for two, since a server takes batches of one for one-sided access.
func (g *grant) ringed(c Configuration) Configuration {
	if g.tuning.TwoSided {
		c.BatchSize = max(c.BatchSize, 2)
	}
	return c
}

// connectShare asks the server of one share for its regions (R33). c is the
// configuration of the whole cache, of whose regions there are as many as of says.
func connectShare(ctx context.Context, cache string, cfg *Config, share *managerv1.Grant, c Configuration, of int) (*grant, error) {
	g := &grant{
		id: share.GetId(), cache: cache, vm: share.GetVm().GetId(),
		controlURL: share.GetVm().GetControlUrl(), granted: share, size: uint64(cfg.RegionSize), distance: int(share.GetVm().GetDistance()), tuning: cfg.Tuning,
		http: cfg.control, timeout: cfg.ServerTimeout, suspicion: make(chan struct{}, 1),
	}
	mine := c.share(int(share.GetRegions()), of)
	if share.GetToken() != "" {
		mine.ServerThreads = min(mine.ServerThreads, int(share.GetCores()))
	}
	var answer *connect.Response[serverv1.ConnectResponse]
	err := g.whileAlive(ctx, func(ctx context.Context) (err error) {
		answer, err = g.control().Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{
			CacheId: cache, Grant: g.id, Token: share.GetToken(), Regions: share.GetRegions(), RegionSize: g.size, Cores: share.GetCores(),
			Configuration: g.ringed(mine).proto(),
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

// accept takes over a server's answer.
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
		return fmt.Errorf("VM %s answers with %d tokens for %d regions, a ticket of %d bytes",
			g.vm, len(m.RegionTokens), regions, len(m.Ticket))
	}
	g.ticket = redywire.Ticket(m.Ticket)
	g.regions.Store(uint32(regions))
	return nil
}

// connectShares is connectShare for several. If one fails, all are given back.
func connectShares(ctx context.Context, cache string, cfg *Config, shares []*managerv1.Grant, c Configuration, of int) (grants []*grant, err error) {
	for _, share := range shares {
		g, err := connectShare(ctx, cache, cfg, share, c, of)
		if err != nil {
			return nil, errors.Join(err, disconnectAll(ctx, grants))
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// share is the configuration of a VM that holds so many of a cache's regions: it
// runs its part of the server threads, rounded up (A17), and every client thread
// has a connection to it.
func (c Configuration) share(regions, of int) Configuration {
	if of > 0 {
		c.ServerThreads = min(c.ServerThreads, (c.ServerThreads*regions+of-1)/of)
	}
	return c
}

func (g *grant) control() serverv1connect.CacheServerServiceClient {
	return serverv1connect.NewCacheServerServiceClient(g.http, g.controlURL)
}

// disconnection asks for a grant's end.
func (g *grant) disconnection() *serverv1.DisconnectRequest {
	req := &serverv1.DisconnectRequest{
		CacheId: g.cache, Grant: g.id,
		Token: g.granted.GetToken(), Regions: g.granted.GetRegions(), RegionSize: g.size, Cores: g.granted.GetCores(),
	}
	if g.ticket != (redywire.Ticket{}) {
		req.Ticket = g.ticket[:]
	}
	return req
}

// disconnect gives a grant's regions back. That they are back already is no error.
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

// disconnectAll gives grants back, even if ctx has ended; lost ones have nothing
// to give.
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

// configure tells the server what the grant's data path is to be. All that a server
// has to say against a configuration that was checked is that it lacks processors.
func (g *grant) configure(ctx context.Context, c Configuration) error {
	_, err := g.control().Configure(ctx, connect.NewRequest(&serverv1.ConfigureRequest{
		CacheId: g.cache, Grant: g.id, Ticket: g.ticket[:], Configuration: g.ringed(c).proto(),
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

// release gives back all regions but the first keep. The turn's holder calls it,
// when the table has no use for them any more.
func (g *grant) release(ctx context.Context, keep uint32) error {
	lent := g.regions.Swap(keep) // first: nobody is to import what goes
	_, err := g.control().Release(ctx, connect.NewRequest(&serverv1.ReleaseRequest{
		CacheId: g.cache, Grant: g.id, Ticket: g.ticket[:], Keep: keep,
	}))
	if err != nil {
		g.regions.Store(lent)
		return fmt.Errorf("release regions of VM %s: %w", g.vm, err)
	}
	return nil
}
