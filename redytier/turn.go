package redytier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// urgency orders control operations. A reclaimed VM is gone at its deadline with everything
// that has not moved; lost memory answers with errors until it is replaced; everything else
// can be done at any time.
type urgency struct {
	rank     int
	deadline time.Time // of leaving
	vm       string    // the VM that is left
}

// Ranks.
const (
	voluntary = iota // requested by the application, or to save money
	restoring
	leaving
)

// before reports whether an operation runs before one that has waited for longer. Of several
// reclaimed VMs, the one with the earliest deadline is left first.
func (u urgency) before(o urgency) bool {
	return u.rank > o.rank || u.rank == o.rank && u.deadline.Before(o.deadline)
}

// sooner is how much earlier a VM's deadline must be to interrupt the leaving of another VM.
// Deadlines of VMs that are reclaimed together differ by less.
const sooner = time.Second

// interrupts reports whether an operation preempts a running one. A second notice for the VM
// that is being left does not: the region on its way would be copied again.
func (u urgency) interrupts(o urgency) bool {
	return u.rank > o.rank || u.rank == leaving && o.rank == leaving && u.vm != o.vm && o.deadline.Sub(u.deadline) >= sooner
}

// errPreempted is the cause with which an operation's context ends when a more urgent one
// waits. The operation is undone as if its caller had given up, and runs again later.
var errPreempted = errors.New("preempted by a more urgent operation")

// turn is the right to change a cache, held by one control operation at a time (A36). It
// passes to the most urgent waiting operation. Its zero value is free.
type turn struct {
	mu      sync.Mutex // guards the fields below
	holder  *claim     // nil: the turn is free
	waiting []*claim   // in the order in which they get the turn
}

// claim is an operation's request for the turn.
type claim struct {
	urgency
	preempt context.CancelCauseFunc // ends the operation; nil: it is short and not preempted
	granted chan struct{}           // closed when the claim holds the turn
}

// acquire waits for the turn, and preempts a holder that is less urgent. Without wait it
// fails with ErrBusy if the turn is held.
func (t *turn) acquire(ctx context.Context, c *claim, wait bool) error {
	c.granted = make(chan struct{})
	t.mu.Lock()
	switch {
	case t.holder == nil:
		t.holder = c
		t.mu.Unlock()
		return nil
	case !wait:
		t.mu.Unlock()
		return ErrBusy
	}
	at := slices.IndexFunc(t.waiting, func(o *claim) bool { return c.before(o.urgency) })
	if at < 0 {
		at = len(t.waiting)
	}
	t.waiting = slices.Insert(t.waiting, at, c)
	if h := t.holder; c.interrupts(h.urgency) && h.preempt != nil {
		h.preempt(errPreempted)
	}
	t.mu.Unlock()
	select {
	case <-c.granted:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	at = slices.Index(t.waiting, c)
	if at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	}
	t.mu.Unlock()
	if at < 0 { // granted meanwhile
		t.release()
	}
	return context.Cause(ctx)
}

// release passes the turn on.
func (t *turn) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holder = nil
	if len(t.waiting) > 0 {
		t.holder = t.waiting[0]
		t.waiting = slices.Delete(t.waiting, 0, 1)
		close(t.holder.granted)
	}
}

// inTurn runs a control operation while it holds the turn. The operation's ctx ends when the
// cache is deleted or a more urgent operation waits. In the second case the operation fails,
// which changes nothing or leaves moved regions where they are, and runs again after the
// other one. An operation that fails because of lost memory does not run again.
//
// While another operation runs, it waits for the turn, or fails with ErrBusy if wait is false.
func (c *Cache) inTurn(ctx context.Context, u urgency, wait bool, operation func(ctx context.Context) error) error {
	for {
		err := c.tryInTurn(ctx, u, wait, operation)
		if !errors.Is(err, errPreempted) {
			return err
		}
		c.log.Info("a control operation runs again after a more urgent one", "err", err)
		wait = true
	}
}

// tryInTurn is one attempt of inTurn.
func (c *Cache) tryInTurn(ctx context.Context, u urgency, wait bool, operation func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(ErrDeleted) })
	defer stop()
	switch err := c.turn.acquire(ctx, &claim{urgency: u, preempt: cancel}, wait); {
	case c.deleted.Load():
		if err == nil {
			c.turn.release()
		}
		return ErrDeleted
	case errors.Is(err, ErrBusy):
		return fmt.Errorf("%w: another control operation runs", err)
	case err != nil:
		return err
	}
	defer c.turn.release()
	err := operation(ctx)
	switch {
	case err == nil:
		return nil
	case c.ctx.Err() != nil && !errors.Is(err, ErrDeleted):
		return fmt.Errorf("%w: %w", ErrDeleted, err)
	case errors.Is(context.Cause(ctx), errPreempted) && !errors.Is(err, ErrRegionUnavailable):
		return errors.Join(errPreempted, err)
	}
	return err
}
