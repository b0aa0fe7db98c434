package redytier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/clock"
)

// keeper reacts to what happens to the cache's VMs: it replaces lost memory, and moves
// regions away from reclaimed VMs. Each task is a goroutine; the turn orders their changes
// by urgency.
type keeper struct {
	cache     *Cache
	tasks     goroutines
	replacing sync.Mutex // held while lost memory is replaced, so that its loss is reported once

	mu      sync.Mutex
	notices map[string]time.Time // deadline of each VM that is reclaimed; guarded by mu
}

// lost replaces the regions of a lost grant, however long that takes. Only its first attempt
// preempts other operations: they would never finish if no memory is available.
func (k *keeper) lost(g *grant) {
	k.tasks.Go(func() {
		c := k.cache
		u := urgency{}
		if c.Err() != nil {
			u.rank = restoring
		}
		k.retry(c.ctx, g.vm, func(ctx context.Context) error {
			k.replacing.Lock()
			defer k.replacing.Unlock()
			defer func() { u = urgency{} }()
			return c.replaceLost(ctx, g, u)
		})
	})
}

// reclaimed moves all regions away from a VM before its deadline. From now on the VM is no
// target of a move.
func (k *keeper) reclaimed(vm string, deadline time.Time) {
	k.mu.Lock()
	if k.notices == nil {
		k.notices = map[string]time.Time{}
	}
	k.notices[vm] = deadline
	k.mu.Unlock()
	k.tasks.Go(func() {
		c := k.cache
		ctx, cancel := context.WithDeadline(c.ctx, deadline)
		defer cancel()
		k.retry(ctx, vm, func(ctx context.Context) error {
			return c.inTurn(ctx, urgency{leaving, deadline, vm}, true, func(ctx context.Context) error { return c.migrate(ctx, []string{vm}, false) })
		})
	})
}

// reclaiming returns the deadlines of the reclaimed VMs that are not gone yet.
func (k *keeper) reclaiming() map[string]time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.notices, func(_ string, deadline time.Time) bool { return time.Now().After(deadline) })
	return maps.Clone(k.notices)
}

// checkTargets refuses memory of a reclaimed VM. If its notice came after the request for
// memory, before which the reclaimed VMs were known, the operation runs again.
func (k *keeper) checkTargets(grants []*managerv1.Grant, known map[string]time.Time) error {
	reclaimed := k.reclaiming()
	for _, g := range grants {
		vm := g.GetVm().GetId()
		if _, ok := reclaimed[vm]; !ok {
			continue
		}
		err := fmt.Errorf("the manager grants memory of VM %s, which is reclaimed", vm)
		if _, ok := known[vm]; !ok {
			err = fmt.Errorf("%w: %w", errPreempted, err)
		}
		return err
	}
	return nil
}

// cheaper moves all regions away from VMs for which there are cheaper ones. It tries once: the
// manager proposes it again while it still saves money.
func (k *keeper) cheaper(vms []string) {
	k.tasks.Go(func() {
		c := k.cache
		err := c.inTurn(c.ctx, urgency{}, true, func(ctx context.Context) error { return c.migrate(ctx, vms, true) })
		if err != nil && c.ctx.Err() == nil && !errors.Is(err, ErrDeleted) {
			c.log.Info("not moved to cheaper VMs", "vms", vms, "err", err)
		}
	})
}

// retry calls replace until it succeeds or ctx ends.
func (k *keeper) retry(ctx context.Context, vm string, replace func(ctx context.Context) error) {
	c := k.cache
	for wait := 2 * firstPause; ; wait = min(2*wait, longPause) {
		err := replace(ctx)
		if err == nil || c.ctx.Err() != nil || errors.Is(err, ErrDeleted) {
			return
		}
		c.log.Warn("VM not replaced", "vm", vm, "again", ctx.Err() == nil, "err", err)
		if !clock.Sleep(ctx, wait) {
			return
		}
	}
}

// goroutines is a group of goroutines that a deleted cache waits for. None starts after end.
type goroutines struct {
	mu      sync.Mutex // guards ended
	ended   bool
	running sync.WaitGroup
}

// Go returns false if end was called.
func (g *goroutines) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.running.Go(f)
	}
	return !g.ended
}

func (g *goroutines) end() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.running.Wait()
}
