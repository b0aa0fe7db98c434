package redytier

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// task is one change of the cache that takes time: a move, a reshape, the replacement of lost
// memory. The controller runs one at a time (A36), the most urgent one that is due, on a
// goroutine of its own. Its fields belong to the controller's goroutine.
type task struct {
	urgency
	ctx       context.Context // of the caller
	operation func(ctx context.Context) error
	ended     func(err error) // called by the controller's goroutine when the task does not run again

	number  uint64      // tasks of one urgency run in the order of their numbers
	due     time.Time   // it does not begin before
	patient bool        // it has failed before: it interrupts no other task
	tidies  bool        // the running operation only has to return memory and to tell the manager
	preempt func(error) // ends the running operation with that cause
	cut     *time.Timer // ends its last steps; nil unless it is preempted
	result  error       // of the last run
}

// urgency orders tasks. A reclaimed VM is gone at its deadline with everything that has not
// moved; lost memory answers with errors until it is replaced; everything else can be done at
// any time.
type urgency struct {
	rank     rank
	deadline time.Time // of leaving
	vm       string    // the VM that is left
}

// rank is the kind of a task, the most urgent last.
type rank int

const (
	tidying     rank = iota // returns memory that nobody uses
	saving                  // moves to cheaper VMs, or has fewer threads
	mending                 // has another configuration, as the SLO is broken
	application             // what the application asked for
	restoring               // replaces lost memory
	leaving                 // moves away from a reclaimed VM
)

// before reports whether a task runs before another one. Of several reclaimed VMs, the one
// with the earliest deadline is left first.
func (t *task) before(o *task) bool {
	switch {
	case t.rank != o.rank:
		return t.rank > o.rank
	case !t.deadline.Equal(o.deadline):
		return t.deadline.Before(o.deadline)
	}
	return t.number < o.number
}

// sooner is how much earlier a VM's deadline must be to interrupt the leaving of another VM.
// Deadlines of VMs that are reclaimed together differ by less.
const sooner = time.Second

// interrupts reports whether a task preempts a running one. A second notice for the VM
// that is being left does not: the region on its way would be copied again. What keeps or restores
// memory does not wait for last steps.
func (t *task) interrupts(o *task) bool {
	switch {
	case o.tidies && t.rank > application:
		return !t.patient
	case t.rank == leaving && o.rank == leaving:
		return t.vm != o.vm && o.deadline.Sub(t.deadline) >= sooner
	}
	return t.rank > o.rank && !t.patient
}

// errPreempted is the cause with which a task's context ends when a more urgent one
// is due. The task stops at its next step, and runs again from its beginning later.
var errPreempted = errors.New("preempted by a more urgent task")

// giveWay bounds the time from a preemption to the end of the task's last step.
const giveWay = 100 * time.Millisecond

// finishing returns a context for the last steps of a task, which return memory and tell the
// manager. They are done even if the task's ctx has ended, but within giveWay if it is
// preempted. What is not done then is left to the task that tidies.
func finishing(task context.Context) (context.Context, context.CancelFunc) {
	late, ok := task.Value(lateKey{}).(context.Context)
	if !ok { // not of a task
		late = context.WithoutCancel(task)
	}
	return context.WithTimeout(context.WithValue(late, lateKey{}, late), controlTimeout) // also for steps of these steps
}

// lateKey is the key of the context in which a task's last steps are taken.
type lateKey struct{}

// withLate returns ctx, which is a task's, with a context for finishing, and what ends that: one
// for the whole task, so that all of its last steps end within giveWay.
func withLate(ctx context.Context) (_ context.Context, end context.CancelCauseFunc) {
	late, end := context.WithCancelCause(context.WithoutCancel(ctx))
	return context.WithValue(ctx, lateKey{}, late), end
}

// outcome returns the error of a task whose operation has returned err. ctx is the
// operation's.
func (c *Cache) outcome(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case c.ctx.Err() != nil && !errors.Is(err, ErrDeleted):
		return fmt.Errorf("%w: %w", ErrDeleted, err)
	case c.taken.Load() && !errors.Is(err, ErrTaken):
		return fmt.Errorf("%w: %w", ErrTaken, err)
	case errors.Is(context.Cause(ctx), errPreempted) && !errors.Is(err, ErrRegionUnavailable):
		return errors.Join(errPreempted, err)
	}
	return err
}
