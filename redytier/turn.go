package redytier

import (
	"context"
	"errors"
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

// errGaveWay is the cause with which the context of an operation ends where a more
// urgent one waits. The operation is undone as if its caller had given up, and tried
// again when the other is through.
var errGaveWay = errors.New("it gives way to something more urgent")

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
	giveWay context.CancelCauseFunc // ends the operation; nil: it is over at once by itself
	granted chan struct{}           // closed when the turn is had
}

// take claims the turn, and asks its holder to give way where that is less urgent. It
// returns when the turn is had, or why not; without wait, only one that is free is had.
func (t *turn) take(ctx context.Context, c *claim, wait bool) error {
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
	if h := t.holder; c.interrupts(h.urgency) && h.giveWay != nil {
		h.giveWay(errGaveWay)
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
		t.pass()
	}
	return context.Cause(ctx)
}

// pass gives the turn back.
func (t *turn) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holder = nil
	if len(t.waiting) > 0 {
		t.holder = t.waiting[0]
		t.waiting = slices.Delete(t.waiting, 0, 1)
		close(t.holder.granted)
	}
}
