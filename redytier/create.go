package redytier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/fabric"
)

// controlTimeout bounds what nobody waits for with a context of his own: taking
// back a failed Create, dialling for a new session, closing one. And it bounds what takes
// a server moments, whatever its caller's patience: connecting to it.
const controlTimeout = 10 * time.Second

// Manager is what a cache needs of the manager's control API. The API's
// generated client has these methods, be the manager remote or in this process.
type Manager interface {
	Allocate(context.Context, *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error)
	Reallocate(context.Context, *connect.Request[managerv1.ReallocateRequest]) (*connect.Response[managerv1.ReallocateResponse], error)
	Settle(context.Context, *connect.Request[managerv1.SettleRequest]) (*connect.Response[managerv1.SettleResponse], error)
	Renew(context.Context, *connect.Request[managerv1.RenewRequest]) (*connect.Response[managerv1.RenewResponse], error)
	Deallocate(context.Context, *connect.Request[managerv1.DeallocateRequest]) (*connect.Response[managerv1.DeallocateResponse], error)
	Watch(context.Context, *connect.Request[managerv1.WatchRequest]) (*connect.ServerStreamForClient[managerv1.WatchResponse], error)
}

// Create makes a cache: the manager finds its VMs, their servers lend regions,
// and the cache is ready when all of them have (R36), and hold the prefix of the
// file if one is given (R2). If anything fails, all of it is taken back and nothing
// remains (R3). The caller deletes the cache.
func Create(ctx context.Context, mgr Manager, cfg Config) (*Cache, error) {
	smaller := cfg.RegionSize == 0
	if err := cfg.ensureDefaults(); err != nil {
		return nil, err
	}
	c, err := createNow(ctx, mgr, cfg, smaller)
	if err == nil || !cfg.Late || ctx.Err() != nil || !isTemporary(err) {
		return c, err
	}
	return createLate(mgr, cfg, err)
}

// createNow makes a cache, or fails. smaller says that its regions may be smaller.
func createNow(ctx context.Context, mgr Manager, cfg Config, smaller bool) (*Cache, error) {
	asking := ctx
	if cfg.Late {
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, controlTimeout)
		defer cancel()
	}
	answer, err := mgr.Allocate(asking, connect.NewRequest(&managerv1.AllocateRequest{
		Capacity:        uint64(cfg.Capacity),
		Slo:             cfg.SLO.proto(),
		DurationSeconds: int64(cfg.Duration / time.Second),
		Configuration:   cfg.Configuration.proto(),
		RegionSize:      uint64(cfg.RegionSize),
		SmallerRegions:  smaller,
		Transport:       cfg.Transport,
		CloudRegion:     cfg.CloudRegion,
		Client:          cfg.client(),
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
	if cfg.File != "" {
		if err := c.populateAll(ctx); err != nil {
			return nil, fmt.Errorf("redytier: create cache %s: %w", c.ID(), errors.Join(err, c.abandon(ctx)))
		}
	}
	return c, nil
}

// abandon deletes a cache that nobody has seen.
func (c *Cache) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlTimeout)
	defer cancel()
	return c.Delete(ctx)
}

// create builds a cache from the manager's answer. On failure the servers have
// their regions back.
func create(ctx context.Context, mgr Manager, cfg Config, m *managerv1.AllocateResponse) (*Cache, error) {
	if m.CacheId == "" || m.RegionSize > 1<<62 {
		return nil, fmt.Errorf("manager answers with cache %q, region size %d", m.CacheId, m.RegionSize)
	}
	cfg.RegionSize = int64(m.RegionSize)
	if err := checkRegionSize(cfg.RegionSize, cfg.Capacity); err != nil {
		return nil, err
	}
	configuration := configurationOf(m.Configuration)
	if err := configuration.Check(cfg.SLO.RecordSize); err != nil {
		return nil, err
	}
	if err := cfg.Tuning.Check(configuration); err != nil {
		return nil, err
	}
	need := newTable(cfg.Capacity, cfg.RegionSize, configuration).need(cfg.Capacity)
	if err := checkShares(m.Grants, need); err != nil {
		return nil, err
	}
	cfg.lease = time.Duration(m.LeaseMs) * time.Millisecond
	grants, err := connectShares(ctx, m.CacheId, &cfg, m.Grants, configuration, need)
	if err != nil {
		return nil, err
	}
	var c *Cache
	name, err := transportOf(grants, "")
	if err == nil && cfg.lease > 0 {
		err = stillThere(ctx, mgr, m.CacheId)
	}
	if err == nil {
		var provider fabric.Provider
		if provider, err = cfg.open(name); err == nil {
			c, err = newCache(mgr, m.CacheId, cfg, configuration, grants, provider)
		}
	}
	if err != nil {
		return nil, errors.Join(err, disconnectAll(ctx, grants))
	}
	return c, nil
}

// stillThere fails where the lease of a cache has ended while its servers were asked
// for their regions. The manager has told those that lent some already, and would not
// tell the others: nobody would take their memory back.
func stillThere(ctx context.Context, mgr Manager, cache string) error {
	_, err := mgr.Renew(ctx, connect.NewRequest(&managerv1.RenewRequest{CacheId: cache}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		return nil // a manager that does not answer is asked again, by the watcher
	}
	return fmt.Errorf("its lease has ended while it was created: %w", err)
}

// checkShares holds a manager's shares against the regions asked for.
func checkShares(shares []*managerv1.Grant, regions int) error {
	sum := uint64(0)
	for _, s := range shares {
		if s.GetRegions() == 0 {
			return fmt.Errorf("manager grants no regions of VM %s", s.GetVm().GetId())
		}
		sum += uint64(s.GetRegions())
	}
	if sum != uint64(regions) {
		return fmt.Errorf("manager grants %d regions, want %d", sum, regions)
	}
	return nil
}

// transportOf is the transport over which all grants are reached: the one given,
// unless that is empty.
func transportOf(grants []*grant, name string) (string, error) {
	for _, g := range grants {
		if name != "" && g.transport != name {
			return "", fmt.Errorf("VM %s is reached over %s, others over %s", g.vm, g.transport, name)
		}
		name = g.transport
	}
	return name, nil
}

func deallocate(ctx context.Context, mgr Manager, cache string) error {
	_, err := mgr.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: cache}))
	if err != nil {
		return fmt.Errorf("deallocate: %w", err)
	}
	return nil
}
