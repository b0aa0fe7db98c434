package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/units"
)

// How the rate of migrations is measured before the first one.
const (
	gaugeBytes   = 32 << 20 // pulled at a time
	gaugeRounds  = 3        // of which the slowest counts
	gaugeTimeout = 5 * time.Second
)

// gauge measures how fast memory leaves a VM where nobody has said so yet, and it
// decides something: this machine's allocators sell spot VMs, and their servers are as
// fast as those of this process. Elsewhere the caches' own migrations tell. A machine
// that cannot be measured is no error: there are no spot VMs until it has shown.
func (m *Manager) gauge() {
	k := m.market()
	if k == nil || !k.HasSpot() || m.rate.get() > 0 {
		return
	}
	bytes, err := measureRate(m.ctx, m.opts.Transport, m.opts.ServerTLS)
	if err != nil {
		m.opts.Logger.Warn("migration not measured: no spot VMs are used until caches have migrated", "transport", m.opts.Transport, "err", err)
		return
	}
	m.rate.assume(bytes)
	m.opts.Logger.Info("migration measured", "transport", m.opts.Transport, "a_second", units.Size(bytes).String())
}

// measureRate has one cache server of this process pull memory from another, as a
// migration does, into pages that nobody has touched before.
func measureRate(ctx context.Context, transport string, secure *tls.Config) (_ float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, gaugeTimeout)
	defer cancel()
	client := httpClient
	if secure != nil {
		client = newHTTPClient(secure)
		defer client.CloseIdleConnections()
	}
	var ends [2]*gaugeEnd
	for i, name := range []string{"source", "target"} {
		n, err := StartNode(NodeOptions{
			ID: "gauge-" + name, Memory: gaugeRounds * gaugeBytes, Transport: transport, FabricTLS: secure, ControlTLS: secure,
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, n.Close()) }()
		if ends[i], err = newGaugeEnd(ctx, n, client); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	slowest := time.Duration(0)
	for i := range gaugeRounds {
		began := time.Now()
		if err := ends[1].pull(ctx, ends[0], i); err != nil {
			return 0, err
		}
		slowest = max(slowest, time.Since(began))
	}
	return gaugeBytes / slowest.Seconds(), nil
}

// gaugeEnd is a server that has lent regions to be pulled, or to be pulled into.
type gaugeEnd struct {
	server serverv1connect.CacheServerServiceClient
	lent   *serverv1.ConnectResponse
}

const (
	gaugeCache = "gauge"
	gaugeGrant = "g1"
)

func newGaugeEnd(ctx context.Context, n *Node, client *http.Client) (*gaugeEnd, error) {
	e := &gaugeEnd{server: serverv1connect.NewCacheServerServiceClient(client, n.vm.ControlURL)}
	r, err := e.server.Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{
		CacheId: gaugeCache, Grant: gaugeGrant, Token: n.vm.token(gaugeCache, gaugeGrant),
		Regions: gaugeRounds, RegionSize: gaugeBytes, Configuration: DefaultConfiguration(),
	}))
	if err != nil {
		return nil, err
	}
	if n := len(r.Msg.GetRegionTokens()); n != gaugeRounds {
		return nil, fmt.Errorf("%d regions lent, want %d", n, gaugeRounds)
	}
	e.lent = r.Msg
	return e, nil
}

// pull copies a region of another end.
func (e *gaugeEnd) pull(ctx context.Context, from *gaugeEnd, region int) error {
	stream, err := e.server.Pull(ctx, connect.NewRequest(&serverv1.PullRequest{
		CacheId: gaugeCache, Grant: gaugeGrant, Ticket: e.lent.GetTicket(),
		FabricAddr: from.lent.GetFabricAddr(), SourceTicket: from.lent.GetTicket(),
		Regions: []*serverv1.PullRegion{{SourceToken: from.lent.GetRegionTokens()[region], Target: uint32(region), Bytes: gaugeBytes}},
	}))
	if err != nil {
		return err
	}
	for stream.Receive() {
	}
	return errors.Join(stream.Err(), stream.Close())
}
