package redytier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/serverv1"
	"github.com/redykv/redykv/internal/api/serverv1/serverv1connect"
	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/transport"
	"github.com/redykv/redykv/internal/redywire"
)

// controlTimeout bounds what nobody waits for with a context of his own: taking
// back a failed Create, dialling for a new session, closing one.
const controlTimeout = 10 * time.Second

// Manager is what a cache needs of the manager's control API. The API's
// generated client has these methods, be the manager remote or in this process.
type Manager interface {
	Allocate(context.Context, *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error)
	Deallocate(context.Context, *connect.Request[managerv1.DeallocateRequest]) (*connect.Response[managerv1.DeallocateResponse], error)
	Watch(context.Context, *connect.Request[managerv1.WatchRequest]) (*connect.ServerStreamForClient[managerv1.WatchResponse], error)
}

// Create makes a cache: the manager finds its VMs, their servers lend regions,
// and the cache is ready when all of them have (R36). If anything fails, all of
// it is taken back and nothing remains (R3). The caller deletes the cache.
func Create(ctx context.Context, mgr Manager, cfg Config) (*Cache, error) {
	if err := cfg.ensureDefaults(); err != nil {
		return nil, err
	}
	answer, err := mgr.Allocate(ctx, connect.NewRequest(&managerv1.AllocateRequest{
		Capacity:        uint64(cfg.Capacity),
		Slo:             cfg.SLO.proto(),
		DurationSeconds: int64(cfg.Duration / time.Second),
		Configuration:   cfg.Configuration.proto(),
		RegionSize:      uint64(cfg.RegionSize),
		Transport:       cfg.Transport,
	}))
	if err != nil {
		return nil, fmt.Errorf("redytier: allocate: %w", err)
	}
	c, err := create(ctx, mgr, cfg, answer.Msg)
	if err != nil {
		// The VMs are released even if it was ctx that ended Create.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlTimeout)
		defer cancel()
		return nil, fmt.Errorf("redytier: create cache %s: %w", answer.Msg.CacheId,
			errors.Join(err, deallocate(ctx, mgr, answer.Msg.CacheId)))
	}
	return c, nil
}

// create builds a cache from the manager's answer. On failure the servers have
// their regions back.
func create(ctx context.Context, mgr Manager, cfg Config, m *managerv1.AllocateResponse) (_ *Cache, err error) {
	if m.CacheId == "" || m.RegionSize > 1<<62 {
		return nil, fmt.Errorf("manager answers with cache %q, region size %d", m.CacheId, m.RegionSize)
	}
	if err := checkRegionSize(int64(m.RegionSize), cfg.Capacity); err != nil {
		return nil, err
	}
	configuration := configurationOf(m.Configuration)
	if err := configuration.check(); err != nil {
		return nil, err
	}
	t := newTable(cfg.Capacity, int64(m.RegionSize))
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlTimeout)
			defer cancel()
			for _, v := range t.vms {
				err = errors.Join(err, disconnect(ctx, m.CacheId, v))
			}
		}
	}()
	var name string
	for _, share := range m.Shares {
		v, vmTransport, err := connectVM(ctx, m, share, shareOf(configuration, share.Regions, t.need()))
		if err != nil {
			return nil, err
		}
		if err := t.add(v); err != nil {
			return nil, errors.Join(err, disconnect(ctx, m.CacheId, v))
		}
		if name != "" && vmTransport != name {
			return nil, fmt.Errorf("VM %s is reached over %s, others over %s", v.id, vmTransport, name)
		}
		name = vmTransport
	}
	if len(t.regions) != t.need() {
		return nil, fmt.Errorf("%d regions of %d granted, want %d", len(t.regions), m.RegionSize, t.need())
	}
	provider, err := transport.Open(name)
	if err != nil {
		return nil, err
	}
	return newCache(mgr, m.CacheId, cfg, configuration, t, provider)
}

// shareOf is the configuration of a VM that holds so many of a cache's regions:
// it runs its part of the server threads, rounded up (A17), and every client
// thread has a connection to it.
func shareOf(c Configuration, regions uint32, of int) Configuration {
	c.ServerThreads = min(c.ServerThreads, (c.ServerThreads*int(regions)+of-1)/of)
	return c
}

// connectVM asks the server of one VM for its share of the regions (R33).
func connectVM(ctx context.Context, m *managerv1.AllocateResponse, share *managerv1.VmShare, c Configuration) (*vm, string, error) {
	url := share.GetVm().GetControlUrl()
	v := &vm{id: share.GetVm().GetId(), controlURL: url, distance: int(share.GetVm().GetDistance())}
	answer, err := serverv1connect.NewCacheServerServiceClient(http.DefaultClient, url).Connect(ctx,
		connect.NewRequest(&serverv1.ConnectRequest{
			CacheId: m.CacheId, Regions: share.Regions, RegionSize: m.RegionSize, Configuration: c.proto(),
		}))
	if err != nil {
		return nil, "", fmt.Errorf("connect to VM %s at %s: %w", v.id, url, err)
	}
	a := answer.Msg
	v.fabricAddr = a.FabricAddr
	bad := len(a.RegionTokens) != int(share.Regions) || len(a.Ticket) != redywire.TicketSize
	for _, token := range a.RegionTokens {
		if len(token) != len(fabric.Token{}) {
			bad = true
			break
		}
		v.tokens = append(v.tokens, fabric.Token(token))
	}
	if bad {
		return nil, "", errors.Join(fmt.Errorf("VM %s answers with %d tokens for %d regions, a ticket of %d bytes",
			v.id, len(a.RegionTokens), share.Regions, len(a.Ticket)), disconnect(ctx, m.CacheId, v))
	}
	v.ticket = redywire.Ticket(a.Ticket)
	return v, a.Transport, nil
}

// disconnect gives a VM's regions back. That they are back already is no error.
func disconnect(ctx context.Context, cache string, v *vm) error {
	req := &serverv1.DisconnectRequest{CacheId: cache}
	if v.ticket != (redywire.Ticket{}) {
		req.Ticket = v.ticket[:]
	}
	_, err := serverv1connect.NewCacheServerServiceClient(http.DefaultClient, v.controlURL).Disconnect(ctx, connect.NewRequest(req))
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		return fmt.Errorf("disconnect from VM %s: %w", v.id, err)
	}
	return nil
}

func deallocate(ctx context.Context, mgr Manager, cache string) error {
	_, err := mgr.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: cache}))
	if err != nil {
		return fmt.Errorf("deallocate: %w", err)
	}
	return nil
}
