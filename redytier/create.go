package redytier

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
	"github.com/redykv/redykv/internal/fabric"
)

// controlTimeout bounds work that has no context of a caller, such as undoing a failed
// Create, dialling for a new session and closing one, and connecting to a server, and the waits
// for a silent manager that do not end an operation, as in [Open].
const controlTimeout = 10 * time.Second

// Manager is the part of the manager's control API that a cache uses. The generated client
// implements it.
type Manager interface {
	Allocate(context.Context, *connect.Request[managerv1.AllocateRequest]) (*connect.Response[managerv1.AllocateResponse], error)
	Reallocate(context.Context, *connect.Request[managerv1.ReallocateRequest]) (*connect.Response[managerv1.ReallocateResponse], error)
	Settle(context.Context, *connect.Request[managerv1.SettleRequest]) (*connect.Response[managerv1.SettleResponse], error)
	Attach(context.Context, *connect.Request[managerv1.AttachRequest]) (*connect.Response[managerv1.AttachResponse], error)
	Adopt(context.Context, *connect.Request[managerv1.AdoptRequest]) (*connect.Response[managerv1.AdoptResponse], error)
	Renew(context.Context, *connect.Request[managerv1.RenewRequest]) (*connect.Response[managerv1.RenewResponse], error)
	Deallocate(context.Context, *connect.Request[managerv1.DeallocateRequest]) (*connect.Response[managerv1.DeallocateResponse], error)
	Watch(context.Context, *connect.Request[managerv1.WatchRequest]) (*connect.ServerStreamForClient[managerv1.WatchResponse], error)
}

// Create makes a cache on VMs that the manager chooses. It returns when their servers have
// lent all regions (R36) and the regions hold the prefix of Config.File, if that is set (R2).
// If anything fails, everything is undone (R3). With Config.Attach it takes up a cache that
// exists. The caller deletes the cache, or leaves it to the next client with Detach.
func Create(ctx context.Context, mgr Manager, cfg Config) (*Cache, error) {
	if cfg.Attach != nil {
		return attach(ctx, mgr, cfg)
	}
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

// createNow makes a cache that has memory. smaller allows smaller regions.
func createNow(ctx context.Context, mgr Manager, cfg Config, smaller bool) (*Cache, error) {
	asking := ctx
	if cfg.Late {
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, controlTimeout)
		defer cancel()
	}
	answer, err := allocate(asking, mgr, &cfg, &managerv1.AllocateRequest{
		Capacity:        uint64(cfg.Capacity),
		Slo:             cfg.SLO.proto(),
		DurationSeconds: int64(cfg.Duration / time.Second),
		Configuration:   cfg.Configuration.proto(),
		RegionSize:      uint64(cfg.RegionSize),
		SmallerRegions:  smaller,
		Transport:       cfg.Transport,
		CloudRegion:     cfg.CloudRegion,
		Client:          cfg.client(),
		LingerMs:        cfg.Linger.Milliseconds(),
		InOrder:         true,
	})
	if err != nil {
		return nil, fmt.Errorf("redytier: allocate: %w", err)
	}
	c, err := create(ctx, mgr, cfg, answer)
	if err != nil {
		// The VMs are released even if ctx has ended.
		ctx, cancel := finishing(ctx)
		defer cancel()
		return nil, fmt.Errorf("redytier: create cache %s: %w", answer.CacheId,
			errors.Join(err, deallocate(ctx, mgr, answer.CacheId, 0)))
	}
	if cfg.File != "" {
		if err := c.populateAll(ctx); err != nil {
			return nil, fmt.Errorf("redytier: create cache %s: %w", c.ID(), errors.Join(err, c.abandon(ctx)))
		}
	}
	return c, nil
}

// allocate calls Allocate until the manager has the VMs, which may take minutes, or ctx ends.
// A cache that is still pending then is released.
func allocate(ctx context.Context, mgr Manager, cfg *Config, req *managerv1.AllocateRequest) (*managerv1.AllocateResponse, error) {
	req.RequestId = rand.Text()
	w := cfg.wait()
	defer w.end()
	for pending := ""; ; {
		req.WaitMs = w.call.Milliseconds()
		call, cancel := context.WithTimeout(ctx, w.call+controlTimeout)
		answer, err := mgr.Allocate(call, connect.NewRequest(req))
		cancel()
		if err == nil {
			if len(answer.Msg.Pending) == 0 {
				return answer.Msg, nil
			}
			pending = answer.Msg.CacheId
			w.goesOn(cfg.Logger.With("cache", pending), answer.Msg.Pending)
			err = context.Cause(ctx)
		}
		if err == nil {
			continue
		}
		if pending == "" && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
			pending = pendingCache(ctx, mgr, req)
		}
		if pending != "" {
			ctx, cancel := finishing(ctx)
			defer cancel()
			err = errors.Join(err, deallocate(ctx, mgr, pending, 0))
		}
		return nil, err
	}
}

// pendingCache asks for the cache of a request whose time has ended before the manager has
// answered. It is empty if the manager does not answer; the manager then releases the cache
// after a while.
func pendingCache(ctx context.Context, mgr Manager, req *managerv1.AllocateRequest) string {
	ctx, end := finishing(ctx)
	defer end()
	ctx, cancel := context.WithTimeout(ctx, minCall)
	defer cancel()
	req.WaitMs = 1
	answer, err := mgr.Allocate(ctx, connect.NewRequest(req))
	if err != nil {
		return ""
	}
	return answer.Msg.CacheId
}

// abandon deletes a cache that was not returned to the caller.
func (c *Cache) abandon(ctx context.Context) error {
	ctx, cancel := finishing(ctx)
	defer cancel()
	return c.Delete(ctx)
}

// create builds a cache from the manager's answer. If it fails, the servers have their
// regions back.
func create(ctx context.Context, mgr Manager, cfg Config, m *managerv1.AllocateResponse) (*Cache, error) {
	if m.CacheId == "" || m.RegionSize > 1<<62 {
		return nil, fmt.Errorf("the manager answers with cache %q and region size %d", m.CacheId, m.RegionSize)
	}
	cfg.RegionSize = int64(m.RegionSize)
	if err := checkCapacity(cfg.Capacity, cfg.RegionSize); err != nil {
		return nil, err
	}
	configuration := configurationOf(m.Configuration)
	need := newTable(cfg.Capacity, cfg.RegionSize, configuration).need(cfg.Capacity)
	if err := errors.Join(cfg.allows(configuration, cfg.SLO.RecordSize), checkGrants(m.Grants, need)); err != nil {
		return nil, err
	}
	cfg.lease, cfg.lingers = time.Duration(m.LeaseMs)*time.Millisecond, time.Duration(m.LingerMs)*time.Millisecond
	grants, err := connectRenewing(ctx, mgr, m.CacheId, cfg.lease, &cfg, m.Grants, configuration, need)
	if err != nil {
		return nil, err
	}
	var c *Cache
	name, err := transportOf(grants, "")
	if err == nil {
		var provider fabric.Provider
		if provider, err = cfg.open(name); err == nil {
			c, err = newCache(ctx, mgr, m.CacheId, cfg, configuration, grants, provider)
		}
	}
	if err != nil {
		return nil, errors.Join(err, disconnectAll(ctx, grants))
	}
	return c, nil
}

// connectRenewing is connectGrants for a cache whose lease is not renewed yet.
func connectRenewing(ctx context.Context, mgr Manager, cache string, lease time.Duration, cfg *Config, shares []*managerv1.Grant, c Configuration, of int) (grants []*grant, err error) {
	err = whileRenewed(ctx, mgr, &managerv1.RenewRequest{CacheId: cache}, lease, func(ctx context.Context) (err error) {
		grants, err = connectGrants(ctx, cache, cfg, shares, c, of)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, disconnectAll(ctx, grants))
	}
	return grants, nil
}

// whileRenewed calls f, which asks all servers of a cache for memory, and renews the cache's lease
// meanwhile. It fails, and ends f, if the lease ends.
func whileRenewed(ctx context.Context, mgr Manager, req *managerv1.RenewRequest, lease time.Duration, f func(ctx context.Context) error) error {
	if lease <= 0 {
		return f(ctx)
	}
	asking, end := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	var ended error
	renewing.Go(func() {
		for clock.Sleep(asking, lease/8) {
			if ended = stillThere(asking, mgr, req); ended != nil {
				end()
			}
		}
	})
	err := f(asking)
	end()
	renewing.Wait()
	if err == nil && ended == nil {
		ended = stillThere(ctx, mgr, req)
	}
	return cmp.Or(ended, err)
}

// stillThere renews a cache's lease, and fails if it ended while its servers were asked for
// regions. The manager took back the grants that existed then; servers that lent regions
// afterwards would keep them lent. The error is ErrTaken if another client has taken the cache up.
func stillThere(ctx context.Context, mgr Manager, req *managerv1.RenewRequest) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	_, err := mgr.Renew(ctx, connect.NewRequest(req))
	if _, taken := holderOf(err); taken {
		return fmt.Errorf("%w: %w", ErrTaken, err)
	}
	if connect.CodeOf(err) != connect.CodeNotFound {
		return nil // if the manager does not answer, the watcher asks again
	}
	return fmt.Errorf("the lease ended while the cache was created: %w", err)
}

// checkGrants checks that the manager's grants have as many regions as were requested.
func checkGrants(shares []*managerv1.Grant, regions int) error {
	sum := uint64(0)
	for _, s := range shares {
		if s.GetRegions() == 0 {
			return fmt.Errorf("the manager grants no regions of VM %s", s.GetVm().GetId())
		}
		sum += uint64(s.GetRegions())
	}
	if sum != uint64(regions) {
		return fmt.Errorf("the manager grants %d regions, want %d", sum, regions)
	}
	return nil
}

// transportOf returns the transport of all grants, which must be name unless that is empty.
func transportOf(grants []*grant, name string) (string, error) {
	for _, g := range grants {
		if name != "" && g.transport != name {
			return "", fmt.Errorf("VM %s is reached over %s, others over %s", g.vm, g.transport, name)
		}
		name = g.transport
	}
	return name, nil
}

func deallocate(ctx context.Context, mgr Manager, cache string, holder uint64) error {
	_, err := deallocated(ctx, mgr, cache, holder)
	return err
}

// deallocated is deallocate, and reports whether the manager knew the cache.
func deallocated(ctx context.Context, mgr Manager, cache string, holder uint64) (existed bool, err error) {
	r, err := mgr.Deallocate(ctx, connect.NewRequest(&managerv1.DeallocateRequest{CacheId: cache, Holder: &holder}))
	if err != nil {
		return false, fmt.Errorf("deallocate: %w", err)
	}
	return r.Msg.GetExisted(), nil
}
