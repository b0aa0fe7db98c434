package redytier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// urgency is how soon a control operation has to run. A reclaimed VM is gone at its
// deadline, with all that has not moved; what is lost answers with errors meanwhile; the
// rest can be done at any time.
type urgency struct {
	rank     int
	deadline time.Time // of leaving
}

// Ranks.
const (
	voluntary = iota // what the application asks for, and moves that save money
	restoring
	leaving
)

// before says whether an operation runs before one that has waited for longer. Among
// VMs to be left, the one that is gone first comes first.
func (u urgency) before(o urgency) bool {
	return u.rank > o.rank || u.rank == o.rank && u.deadline.Before(o.deadline)
}

// sooner is how much earlier than the holder's a deadline has to be for a VM to interrupt
// the leaving of another. VMs that are reclaimed together have deadlines that differ by less.
const sooner = time.Second

// interrupts says whether an operation ends one that runs.
func (u urgency) interrupts(o urgency) bool {
	return u.rank > o.rank || u.rank == leaving && o.rank == leaving && o.deadline.Sub(u.deadline) >= sooner
}

// errPreempted is the cause with which the context of an operation ends where a more
// urgent one waits. The operation is undone as if its caller had given up, and tried
// again when the other is through.
var errPreempted = errors.New("it gives way to something more urgent")

// turn is held by one control operation at a time (A36). It passes to the most urgent of
// those that wait. Its zero value is free.
type turn struct {
	mu      sync.Mutex
	holder  *claim
	waiting []*claim // the next one first
}

// claim is an operation's on the turn.
type claim struct {
	urgency
	preempt context.CancelCauseFunc // ends the operation; nil: it is over at once by itself
	granted chan struct{}           // closed when the turn is had
}

// acquire claims the turn, and asks its holder to give way where that is less urgent. It
// returns when the turn is had, or why not; without wait, only one that is free is had.
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

// release gives the turn back.
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

// inTurn carries out a control operation when no other runs. The operation's ctx ends
// when the cache is deleted, and when a more urgent one waits: then the operation fails,
// which changes nothing or leaves what has moved where it is, and is carried out again
// after the other. One that fails for memory that is lost does so at once.
func (c *Cache) inTurn(ctx context.Context, u urgency, operation func(ctx context.Context) error) error {
	return c.runInTurn(ctx, u, true, operation)
}

// requested is inTurn for what the application asks for: while another operation runs it
// waits or is refused, as Config says.
func (c *Cache) requested(ctx context.Context, operation func(ctx context.Context) error) error {
	return c.runInTurn(ctx, urgency{}, !c.cfg.RefuseBusy, operation)
}

func (c *Cache) runInTurn(ctx context.Context, u urgency, wait bool, operation func(ctx context.Context) error) error {
	for {
		err := c.tryInTurn(ctx, u, wait, operation)
		if !errors.Is(err, errPreempted) {
			return err
		}
		c.log.Info("a control operation is carried out again, after another one", "err", err)
		wait = true
	}
}

// tryInTurn is one attempt of runInTurn.
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
