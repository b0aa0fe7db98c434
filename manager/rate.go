package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/node"
)

// Constants of gauge.
const (
	gaugeBytes   = 16 << 20 // in one pull
	gaugeRounds  = 3        // the result is their median (A22)
	gaugeTimeout = 5 * time.Second
)

// gauge measures the migration rate if it is unknown and the allocator's market has spot VMs;
// the market's VMs are on this machine, so that servers in this process are as fast.
// Otherwise caches measure it. An error is only logged: spot VMs are not used until caches
// have migrated.
func (m *Manager) gauge() {
	k := m.market()
	if k == nil || !k.HasSpot() || m.rate.get() > 0 {
		return
	}
	bytes, err := measureRate(m.ctx, m.servers, m.opts.Transport, m.opts.ServerTLS)
	if err != nil {
		m.opts.Logger.Warn("migration not measured: no spot VMs are used until caches have migrated", "transport", m.opts.Transport, "err", err)
		return
	}
	m.rate.set(bytes, false)
	m.opts.Logger.Info("migration measured", "transport", m.opts.Transport, "a_second", units.Size(bytes).String())
}

// measureRate lets one cache server of this process pull memory from another, as a migration
// does: from written pages into untouched ones.
func measureRate(ctx context.Context, client *http.Client, transport string, secure *tls.Config) (_ float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, gaugeTimeout)
	defer cancel()
	var ends [2]*gaugeEnd
	for i, regions := range []uint32{1, 1 + gaugeRounds} {
		n, err := node.Start(node.Options{
			ID: fmt.Sprintf("gauge-%d", i), Memory: uint64(regions) * gaugeBytes, Transport: transport, FabricTLS: secure, ControlTLS: secure,
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, n.Close()) }()
		if ends[i], err = newGaugeEnd(ctx, n, client, regions); err != nil {
			return 0, err
		}
	}
	source, target := ends[0], ends[1]
	if err := source.pull(ctx, target, 0, 0); err != nil { // writes the source's pages
		return 0, err
	}
	var took [gaugeRounds]time.Duration
	for i := range uint32(gaugeRounds) {
		began := time.Now()
		if err := target.pull(ctx, source, 0, 1+i); err != nil {
			return 0, err
		}
		took[i] = max(1, time.Since(began))
	}
	slices.Sort(took[:])
	return gaugeBytes / took[gaugeRounds/2].Seconds(), nil
}

// gaugeEnd is a server with a grant, the source or the target of a pull.
type gaugeEnd struct {
	server serverv1connect.CacheServerServiceClient
	lent   *serverv1.ConnectResponse
}

const (
	gaugeCache = "gauge"
	gaugeGrant = "g1"
)

func newGaugeEnd(ctx context.Context, n *node.Node, client *http.Client, regions uint32) (*gaugeEnd, error) {
	e := &gaugeEnd{server: serverv1connect.NewCacheServerServiceClient(client, n.VM().ControlURL)}
	terms := &managerv1.Terms{CacheId: gaugeCache, Grant: gaugeGrant, VmId: n.VM().ID, Regions: regions, RegionSize: gaugeBytes}
	r, err := e.server.Connect(ctx, connect.NewRequest(&serverv1.ConnectRequest{
		Terms: terms, Token: n.VM().Token(terms), Configuration: DefaultConfiguration(),
	}))
	if err != nil {
		return nil, err
	}
	if n := len(r.Msg.GetRegionTokens()); n != int(regions) {
		return nil, fmt.Errorf("%d regions lent, want %d", n, regions)
	}
	e.lent = r.Msg
	return e, nil
}

// pull copies a region from another end.
func (e *gaugeEnd) pull(ctx context.Context, from *gaugeEnd, region, into uint32) error {
	stream, err := e.server.Pull(ctx, connect.NewRequest(&serverv1.PullRequest{
		CacheId: gaugeCache, Grant: gaugeGrant, Ticket: e.lent.GetTicket(),
		FabricAddr: from.lent.GetFabricAddr(), SourceTicket: from.lent.GetTicket(),
		Regions: []*serverv1.PullRegion{{SourceToken: from.lent.GetRegionTokens()[region], Target: into, Bytes: gaugeBytes}},
	}))
	if err != nil {
		return err
	}
	for stream.Receive() {
	}
	return errors.Join(stream.Err(), stream.Close())
}

// rate is the rate at which memory leaves a VM, as measured by caches.
type rate struct {
	mu       sync.Mutex // guards the fields below
	bytes    float64    // a second; 0: unknown
	measured bool       // by caches
}

const (
	// leastMove is the minimum of bytes of a measurement; the time of less is dominated by
	// a move's fixed costs.
	leastMove = 16 << 20
	// rateWeight is the weight of one report in the average.
	rateWeight = 0.25
)

// report adds a cache's measurement. It returns false if it is too small or invalid.
func (r *rate) report(bytes uint64, took time.Duration) bool {
	if bytes < leastMove || bytes > node.MaxMemory || took <= 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, weight := float64(bytes)/took.Seconds(), rateWeight
	if r.bytes == 0 {
		weight = 1
	}
	r.bytes, r.measured = r.bytes+weight*(now-r.bytes), true
	return true
}

// set sets the rate until caches report it. measured says that caches had reported it.
func (r *rate) set(bytes float64, measured bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes, r.measured = bytes, measured
}

// learnt returns the rate that caches have measured; 0: none has.
func (r *rate) learnt() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.measured {
		return 0
	}
	return r.bytes
}

func (r *rate) get() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}
