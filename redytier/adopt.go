package redytier

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
)

// This file makes a cache known to a manager that does not know it, as it was started with an empty
// catalog, another one or an older copy. The servers go on lending meanwhile.

// adoptPatience is for how long a manager is asked to adopt a cache: its servers have to register before.
const adoptPatience = 30 * time.Second

// adoptGrants bounds the grants of one call: requests are small.
const adoptGrants = 128

// adopted reports whether a manager that did not know the cache by an id knows it now. If not, the
// cache has noted that it is forgotten.
func (c *Cache) adopted(id string) bool {
	before := c.adoptions.Load()
	select { // not a mutex: it is held while others wait
	case c.adopting <- struct{}{}:
		defer func() { <-c.adopting }()
	case <-c.ctx.Done():
		return false
	}
	patience, cancel := clock.WithAwakeTimeout(c.ctx, adoptPatience, context.DeadlineExceeded)
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, time.Second) {
		if c.adoptions.Load() != before {
			return true // by a task
		}
		err := c.adopt(patience, id)
		switch code := connect.CodeOf(err); {
		case err == nil:
			return true
		case code != connect.CodeUnavailable && code != connect.CodeDeadlineExceeded || !clock.Sleep(patience, clock.Jitter(wait)):
			if c.ctx.Err() == nil && !c.taken.Load() && !c.gone() {
				c.log.Warn("the manager does not adopt the cache", "err", err)
				c.forgotten(id)
			}
			return false
		}
	}
}

// renewed has a manager that knows the cache in an older state adopt what it lacks. If that fails, the
// manager is asked again with the next renewal: it keeps the cache meanwhile.
func (c *Cache) renewed(id string) {
	if err := c.adopt(c.ctx, id); err != nil && c.ctx.Err() == nil {
		c.log.Warn("the manager knows the cache in an older state", "err", err)
	}
}

// adopt has the manager adopt the cache, or the grants that it does not know.
func (c *Cache) adopt(ctx context.Context, id string) error {
	req, grants := c.adoption(id)
	if len(grants) == 0 {
		return fmt.Errorf("adopt: %w", errNoMemory)
	}
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	var answer *connect.Response[managerv1.AdoptResponse]
	for req.Grants = range slices.Chunk(grants, adoptGrants) {
		var err error
		if answer, err = c.mgr.Adopt(ctx, connect.NewRequest(req)); err != nil {
			return fmt.Errorf("adopt: %w", c.heed(err))
		}
	}
	c.mu.Lock()
	if c.known.id == id {
		c.known.linger = time.Duration(answer.Msg.GetLingerMs()) * time.Millisecond
	}
	c.mu.Unlock()
	c.adoptions.Add(1)
	c.log.Info("the manager has adopted the cache, or what it lacked of it")
	c.unsettled.Store(true) // it gets what a running task changes, and the places
	c.controller.do(c.controller.duties.tidy.call)
	lease := time.Duration(answer.Msg.GetLeaseMs()) * time.Millisecond
	if c.lease.Swap(int64(lease)) == 0 && lease > 0 { // the manager before gave none
		c.background.Go(func() { c.watcher.renew(c.ctx, id, req.Holder, lease) })
	}
	return nil
}

// adoption returns the cache as the manager may adopt it, and all grants that sessions are connected
// to, for whichever table a task makes of them.
func (c *Cache) adoption(id string) (*managerv1.AdoptRequest, []*managerv1.Grant) {
	t, transport := c.table.Load(), c.Transport()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known.id != id || c.known.gone {
		return nil, nil
	}
	req := &managerv1.AdoptRequest{
		CacheId: id, Holder: c.known.holder, Change: c.change.Add(1), Per: uint32(t.per), LeaseMs: time.Duration(c.lease.Load()).Milliseconds(), Answered: c.answered.Load(),
		As: &managerv1.AllocateRequest{
			Capacity: uint64(t.capacity), DurationSeconds: c.durationLeft(), Configuration: t.configuration.proto(),
			RegionSize: uint64(t.regionSize()), Transport: transport, CloudRegion: c.cfg.CloudRegion, Client: c.cfg.client(), LingerMs: c.cfg.Linger.Milliseconds(),
		},
	}
	all := t.connected()
	for _, e := range c.endpoints {
		if !slices.Contains(all, e.grant) {
			all = append(all, e.grant)
		}
	}
	var grants []*managerv1.Grant
	for _, g := range all {
		if g.cache == id && g.lost.Load() == nil {
			signed := g.signed.Load()
			grants = append(grants, &managerv1.Grant{Id: g.id, Regions: g.regions.Load(), Terms: signed.GetTerms(), Token: signed.GetToken()})
		}
	}
	return req, grants
}
