package redytier

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// This file ends the use of a cache that another client has taken up. Its servers have ended this
// client's connections then, and refuse its tickets. The manager refuses its calls, by which it
// learns the reason.

// holderOf returns the present holder of a cache from the manager's refusal of a call.
func holderOf(err error) (holder uint64, taken bool) {
	answer, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return 0, false
	}
	for _, d := range answer.Details() {
		m, err := d.Value()
		if err != nil {
			continue // of a newer manager
		}
		if of, ok := m.(*managerv1.HolderDetail); ok {
			return of.GetHolder(), true
		}
	}
	return 0, false
}

// heed returns the error of a call of the manager. If that says that another client has taken the
// cache up, this client uses none of it any more, and the error is ErrTaken.
func (c *Cache) heed(err error) error {
	present, taken := holderOf(err)
	switch {
	case !taken:
		return err
	case present < c.holder():
		return connect.NewError(connect.CodeAborted, fmt.Errorf("the manager has a former holder's state: %w", err))
	}
	c.controller.do(c.controller.taken)
	return fmt.Errorf("%w: %w", ErrTaken, err)
}

// forfeited returns why the cache must not use the memory of a grant: another client has taken the
// cache up, or the manager has forgotten it, so that a device's cache has lost all memory.
func (c *Cache) forfeited(g *grant) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.taken.Load():
		return ErrTaken
	case c.known.gone && c.known.id == g.cache && c.observing() != nil:
		return errForgotten
	}
	return nil
}

// taken takes all regions from this client: requests to them end with ErrTaken, also those that
// would wait for lost memory. No task begins any more.
func (k *controller) taken() {
	c := k.cache
	if c.taken.Swap(true) {
		return
	}
	if k.running != nil {
		k.running.preempt(ErrTaken)
	}
	waiting := k.waiting
	k.waiting = nil
	for _, t := range waiting {
		t.ended(ErrTaken)
	}
	cause, err := ErrTaken, fmt.Errorf("%w: %w", ErrRegionUnavailable, ErrTaken)
	c.mu.Lock()
	for s := range c.sessions {
		s.waits.Store(false)
	}
	c.mu.Unlock()
	k.publish(func(t *table) {
		for _, e := range t.endpoints {
			e.grant.lost.CompareAndSwap(nil, &cause)
		}
		for i := range t.regions.len() {
			t.regions.edit(i).lose(&err)
		}
	})
	if o := c.observing(); o != nil {
		o.lost(span{0, c.Capacity()})
	}
	c.watcher.report(Event{Kind: CacheTaken, To: c.Capacity(), Err: ErrTaken})
}
