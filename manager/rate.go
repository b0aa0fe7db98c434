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

	"github.com/redykv/redykv/internal/api/catalogv1"
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
	if k == nil || !k.HasSpot() || m.rates.of(m.opts.Transport, "") > 0 {
		return
	}
	bytes, err := measureRate(m.ctx, m.servers, m.opts.Transport, m.opts.ServerTLS)
	if err != nil {
		m.opts.Logger.Warn("migration not measured: no spot VMs are used until caches have migrated", "transport", m.opts.Transport, "err", err)
		return
	}
	m.rates.setBase(m.opts.Transport, bytes)
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

// rates are the rates in bytes a second at which memory leaves a VM. They are per transport, and per
// source: the owner of caches, or a cache without an owner. What a source reports holds for itself. For
// others it is one voice of several: they have the median of all sources, from leastSources on, and
// before that the base. The zero rates know none.
type rates struct {
	mu      sync.Mutex // guards the fields below
	base    float64    // until there are reports; 0: unknown
	only    string     // the transport of base; empty: all
	sources []*source  // the one that reported last comes last
}

// source is what one source has reported for one transport.
type source struct {
	transport, name string
	samples         []float64 // the latest ones
}

const (
	// leastMove is the minimum of bytes of a measurement; the time of less is dominated by
	// a move's fixed costs.
	leastMove = 16 << 20
	// mostRate bounds the rate of a measurement: no network and no memory is as fast.
	mostRate = 1 << 40
	// samplesKept is the number of measurements of a source that are kept.
	samplesKept = 9
	// leastSources is how many sources have to have reported before their median counts for others.
	leastSources = 3
	// sourcesKept bounds the sources.
	sourcesKept = 256
)

// report adds a source's measurement of a move. It returns false if that is too small or invalid.
// returned are the bytes that the source has given back with the report: no more can have moved.
func (r *rates) report(transport, name string, bytes, returned uint64, took time.Duration) bool {
	if bytes < leastMove || bytes > returned || took <= 0 || float64(bytes) > mostRate*took.Seconds() {
		return false
	}
	r.add(transport, name, float64(bytes)/took.Seconds())
	return true
}

// add adds samples of a source.
func (r *rates) add(transport, name string, samples ...float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := &source{transport: transport, name: name}
	if i := slices.IndexFunc(r.sources, func(s *source) bool { return s.transport == transport && s.name == name }); i >= 0 {
		of = r.sources[i]
		r.sources = slices.Delete(r.sources, i, i+1)
	}
	of.samples = append(of.samples, samples...)
	of.samples = of.samples[max(0, len(of.samples)-samplesKept):]
	r.sources = append(r.sources, of)
	r.sources = r.sources[max(0, len(r.sources)-sourcesKept):]
}

// setBase sets the base of a transport.
func (r *rates) setBase(transport string, bytes float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.base, r.only = bytes, transport
}

// of returns the rate for a source; 0: unknown.
func (r *rates) of(transport, name string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []float64
	for _, s := range r.sources {
		if s.transport != transport {
			continue
		}
		if s.name == name {
			return median(s.samples)
		}
		all = append(all, median(s.samples))
	}
	switch {
	case len(all) >= leastSources:
		return median(all)
	case r.only == "" || r.only == transport:
		return r.base
	}
	return 0
}

// median returns the lower median of numbers, at least one.
func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[(len(all)-1)/2]
}

// learnt returns what was reported, to be stored.
func (r *rates) learnt() (all []*catalogv1.MoveRates) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sources {
		all = append(all, &catalogv1.MoveRates{Transport: s.transport, Source: s.name, BytesPerSecond: slices.Clone(s.samples)})
	}
	return all
}

// relearn restores what was stored.
func (r *rates) relearn(all []*catalogv1.MoveRates) {
	for _, p := range all {
		samples := slices.DeleteFunc(slices.Clone(p.GetBytesPerSecond()), func(b float64) bool { return !(b > 0 && b <= mostRate) })
		if len(samples) > 0 {
			r.add(p.GetTransport(), p.GetSource(), samples...)
		}
	}
}
