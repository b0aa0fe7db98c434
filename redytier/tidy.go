package redytier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// This file has the last steps of tasks: memory that the table does not use goes back to its
// servers, and the manager learns what the cache consists of. Such a step that fails, or has to
// give way, leaves unsettled set, or a gap; the duty tidy then repeats it.

// tidyUp takes all of these steps, and renews client threads that are outdated.
func (c *Cache) tidyUp(ctx context.Context) error {
	err := c.returnUnused(ctx)
	if err == nil && c.allowed != (Configuration{}) {
		err = c.configureServers(ctx, Configuration{})
	}
	if err == nil {
		err = c.closeGaps(ctx)
	}
	if err == nil {
		err = c.clients.renew(ctx)
	}
	if err == nil && c.unsettled.Load() {
		err = errors.New("the manager does not know the cache's regions")
	}
	return err
}

// closeGaps moves regions so that all memory that the table does not use can be returned: a server
// takes the last regions of a grant back only. Gaps before them are left by a move of several
// regions that ends half way.
func (c *Cache) closeGaps(ctx context.Context) error {
	within, leave := c.table.Load().closeGaps()
	if c.gone() {
		return nil
	}
	if len(within) > 0 {
		// A client that takes the cache up meanwhile must not find a place that its region has left.
		regions := make([]int, len(within))
		for i, p := range within {
			regions[i] = p.region
		}
		if err := c.settleAs(ctx, c.Configuration(), regions); err != nil {
			c.unsettled.Store(true)
			return err
		}
		for _, p := range within {
			p.endpoint.grant.setLived(p.index, false)
		}
		if err := c.leave(ctx, within); err != nil {
			return err
		}
		_, leave = c.table.Load().closeGaps()
	}
	if len(leave) == 0 {
		return nil
	}
	return c.relocate(ctx, leave, &managerv1.ReallocateRequest{PreferPresent: true})
}

// untidy reports whether tidyUp has something to do.
func (c *Cache) untidy() bool {
	if c.unsettled.Load() {
		return true
	}
	if c.gone() {
		return false
	}
	within, leave := c.table.Load().closeGaps()
	return len(within)+len(leave) > 0 || c.outdatedThreads()
}

// returnUnused returns memory that the table does not use: grants without regions, and then
// the last regions of others. After an error a request may be pending to these, and they stay.
// Unused regions before used ones are left to closeGaps.
func (c *Cache) returnUnused(ctx context.Context) error {
	err := c.dropIdleGrants(ctx)
	if err == nil {
		c.releaseUnused(ctx)
	}
	return err
}

// dropIdleGrants returns grants without regions to their servers, and settles the table with
// the manager, even if ctx has ended. It waits for requests that are pending, but not while a
// more urgent task waits for it. What it does not return, the next call does.
func (c *Cache) dropIdleGrants(task context.Context) (err error) {
	defer func() {
		if err != nil {
			// The manager learns where the regions are, however long an application leaves a
			// request where they were; it does not matter any more to a cache that is closed.
			if c.ctx.Err() == nil {
				ctx, cancel := finishing(task)
				defer cancel()
				c.settle(ctx)
			}
			c.unsettled.Store(true)
		}
	}()
	ctx, cancel := finishing(task)
	defer cancel()
	idle := c.table.Load().idle()
	// Twice: until no session reads there (A42), and until none is connected.
	if err := c.quiesce(ctx); err != nil {
		return err
	}
	c.removeEndpoints(idle)
	stay := c.table.Load().grants()
	for _, e := range idle {
		if !slices.Contains(stay, e.grant) && !slices.Contains(c.leaving, e.grant) {
			c.leaving = append(c.leaving, e.grant)
		}
	}
	if err := c.quiesce(ctx); err != nil {
		return err
	}
	if err := disconnectAll(ctx, c.leaving); err != nil {
		c.log.Warn("returning unused regions to the servers", "err", err)
	}
	c.leaving = nil
	c.settle(ctx)
	return nil
}

// releaseUnused releases the last regions of grants if the table does not use them, even if
// ctx has ended.
func (c *Cache) releaseUnused(ctx context.Context) {
	ctx, cancel := finishing(ctx)
	defer cancel()
	keep := map[*grant]uint32{}
	for _, r := range c.table.Load().regions.all() {
		if r.endpoint != nil {
			keep[r.endpoint.grant] = max(keep[r.endpoint.grant], r.index+1)
		}
	}
	grants := slices.Collect(maps.Keys(keep))
	var released, failed atomic.Bool
	_ = forEach(len(grants), func(i int) error { // errors are logged
		g, n := grants[i], keep[grants[i]]
		if n == g.regions.Load() && !g.unreleased.Load() {
			return nil
		}
		if err := g.release(ctx, n); err != nil {
			c.log.Warn("returning regions after shrinking", "err", err)
			failed.Store(true)
			return nil
		}
		released.Store(true)
		return nil
	})
	if released.Load() {
		c.settle(ctx)
	}
	if failed.Load() {
		c.unsettled.Store(true)
	}
}

// settle tells the manager what the cache consists of. ctx is of finishing.
func (c *Cache) settle(ctx context.Context) {
	if c.gone() { // the manager does not know the cache
		c.unsettled.Store(false)
		return
	}
	err := c.settleAs(ctx, c.Configuration(), nil)
	c.unsettled.Store(err != nil)
	if err != nil {
		c.log.Warn("settling the cache with the manager", "err", err)
	}
}

// settleAs tells the manager what the cache consists of, with a given configuration. The regions
// that move have no place then.
func (c *Cache) settleAs(ctx context.Context, configuration Configuration, moving []int) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	t := c.table.Load()
	req := &managerv1.SettleRequest{
		CacheId: c.ID(), Capacity: uint64(t.capacity), Slo: c.slo.proto(), Configuration: configuration.proto(),
		Holder: c.holder(),
	}
	// Sessions may still read where regions have left, until dropIdleGrants has removed that.
	grants := t.connected()
	grants = slices.DeleteFunc(grants, func(g *grant) bool { return g.cache != req.CacheId || g.lost.Load() != nil }) // of a former id
	for _, g := range grants {
		req.Grants = append(req.Grants, &managerv1.SettledGrant{Id: g.id, Regions: g.regions.Load()})
	}
	req.Places = placesIn(t, grants, moving)
	moved := c.moved
	if !t.fills(grants) {
		moved = moveStats{} // the Settle that gives back what was left reports the move
	}
	req.MovedBytes, req.MovedMs = moved.bytes, moved.took.Milliseconds()
	call := func() (answer *connect.Response[managerv1.SettleResponse], err error) {
		req.Change = c.change.Add(1)
		answer, err = c.mgr.Settle(ctx, connect.NewRequest(req))
		return answer, c.heed(err)
	}
	answer, err := call()
	switch code := connect.CodeOf(err); {
	case err == nil || errors.Is(err, ErrTaken):
	case (code == connect.CodeFailedPrecondition || code == connect.CodeNotFound || code == connect.CodeAborted) && c.adopt(ctx, req.CacheId) == nil: // it lacked a grant, or all
		answer, err = call()
	}
	switch {
	case connect.CodeOf(err) == connect.CodeResourceExhausted:
		return fmt.Errorf("settle: %w: %w", ErrCores, err)
	case err != nil:
		return fmt.Errorf("settle: %w", err)
	}
	c.answered.Store(req.Change) // tasks run one at a time
	for i, signed := range answer.Msg.GetGrants() {
		if i < len(grants) && signed.GetId() == grants[i].id {
			grants[i].signed.Store(signed)
		}
	}
	if moved.bytes > 0 {
		c.moved = moveStats{}
	}
	return nil
}

// configureServers tells every server its part of the table's configuration, and what else it is to
// allow, even if ctx has ended. Connections that need more than that end.
func (c *Cache) configureServers(ctx context.Context, allowed Configuration) error {
	ctx, cancel := finishing(ctx)
	defer cancel()
	c.allowed = c.allowed.most(c.Configuration()) // some servers may have done it
	err := c.configureAll(ctx, c.Configuration().most(allowed))
	if err != nil {
		c.unsettled.Store(true)
		return err
	}
	c.allowed = allowed
	return nil
}

// configureAll configures every server for its part of a configuration.
func (c *Cache) configureAll(ctx context.Context, configuration Configuration) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	t := c.table.Load().clone()
	t.configure(configuration)
	grants := t.grants()
	return forEach(len(grants), func(i int) error {
		g := grants[i]
		return g.configure(ctx, configuration.share(int(g.regions.Load()), t.per))
	})
}
