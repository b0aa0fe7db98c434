package redytier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// controller is a goroutine that makes all changes of a cache. It alone publishes tables, and
// it decides what is done next. What happens elsewhere arrives as mail: a connection has
// failed, a VM is reclaimed, the application calls, memory was replaced. The goroutine never
// waits for anything but mail, so a loss takes effect at once.
//
// What takes time is a task (task.go). One task runs at a time, on a goroutine of its own, and
// makes its changes by mail as well. The controller picks it in this order:
//
//	leaving      a reclaimed VM, the earliest deadline first
//	restoring    lost memory
//	application  Migrate, Reshape, Reconfigure, in the order of the calls
//	mending      another configuration, for which the manager asks because the SLO is broken
//	saving       moves to cheaper VMs, or a configuration with fewer threads
//	tidying      memory that nobody uses goes back to its servers; the manager is told
//
// A task that is due preempts a less urgent one: the ctx of the running task ends, it stops
// within giveWay, and runs again later. It then starts from the table as it finds it, so what
// it has done is not done twice. When the regions of a reclaimed VM have moved, what is left to do
// is no more urgent than tidying. The controller's own tasks (duties.go) are repeated until
// there is nothing left to do.
type controller struct {
	cache *Cache
	mail  *mailbox
	idle  chan *task    // the task that has ended
	over  chan struct{} // closed when the goroutine has ended

	// The fields below belong to the goroutine.
	waiting []*task
	running *task // nil: none
	tasks   uint64
	ending  bool // no task begins any more
	duties  duties
}

// startController starts the controller of a cache whose table is set.
func startController(c *Cache) *controller {
	k := &controller{cache: c, mail: newMailbox(), idle: make(chan *task), over: make(chan struct{})}
	k.duties = newDuties(k)
	go k.run()
	return k
}

// do executes f on the controller's goroutine and returns when it has ended, or at once if the
// controller has. It must not be called on that goroutine.
func (k *controller) do(f func()) {
	done := make(chan struct{})
	if k.mail.post(func() { defer close(done); f() }) {
		<-done
	}
}

// stop ends the controller when the running task has ended. The cache's ctx has ended, and so
// has the task's. Waiting tasks end with ErrDeleted.
func (k *controller) stop() {
	k.mail.post(func() { k.ending = true })
	<-k.over
}

func (k *controller) run() {
	defer close(k.over)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !k.ending || k.running != nil {
		if next := k.dispatch(time.Now()); next > 0 {
			timer.Reset(next)
		}
		select {
		case <-k.mail.some:
			for _, letter := range k.mail.take(false) {
				letter()
			}
		case t := <-k.idle:
			k.finish(t)
		case <-timer.C:
		}
	}
	for _, t := range k.waiting {
		t.ended(ErrDeleted)
	}
	for _, letter := range k.mail.take(true) {
		letter()
	}
}

// dispatch begins the most urgent task that is due, or preempts a less urgent running one. It
// returns the time until the next task is due; 0: none waits.
func (k *controller) dispatch(now time.Time) (next time.Duration) {
	var first *task
	for _, t := range k.waiting {
		switch wait := t.due.Sub(now); {
		case wait > 0 && (next == 0 || wait < next):
			next = wait
		case wait > 0:
		case first == nil || t.before(first):
			first = t
		}
	}
	switch {
	case first == nil || k.ending:
	case k.running == nil:
		k.begin(first)
	case slices.ContainsFunc(k.waiting, func(t *task) bool { return !t.due.After(now) && t.interrupts(k.running) }):
		k.running.preempt(errPreempted)
	}
	return next
}

// begin runs a waiting task.
func (k *controller) begin(t *task) {
	k.waiting = slices.DeleteFunc(k.waiting, func(o *task) bool { return o == t })
	k.running, t.tidies = t, false
	ctx, cancel := context.WithCancelCause(t.ctx)
	ctx, end := withLate(ctx)
	t.preempt = func(cause error) {
		cancel(cause)
		if errors.Is(cause, errPreempted) && t.cut == nil { // its caller may have given up before
			t.cut = time.AfterFunc(giveWay, func() { end(errPreempted) })
		}
	}
	stop := context.AfterFunc(k.cache.ctx, func() { cancel(ErrDeleted) })
	operation := t.operation
	go func() {
		t.result = k.cache.outcome(ctx, operation(ctx))
		end(nil)
		stop()
		cancel(nil)
		k.idle <- t
	}()
}

// finish handles the end of the running task. A preempted one waits for its next run.
func (k *controller) finish(t *task) {
	k.running = nil
	if t.cut != nil {
		t.cut.Stop()
		t.cut = nil
	}
	if t.rank != tidying && k.cache.untidy() {
		k.duties.tidy.call()
	}
	switch {
	case !errors.Is(t.result, errPreempted) || k.ending || k.cache.taken.Load():
		t.ended(t.result)
	case t.ctx.Err() != nil:
		t.ended(fmt.Errorf("%w: %w", context.Cause(t.ctx), t.result))
	default:
		k.cache.log.Info("a task runs again after a more urgent one", "err", t.result)
		k.waiting = append(k.waiting, t)
	}
}

// lastSteps notes that the running task only has to return memory and to tell the manager. The task
// calls it.
func (k *controller) lastSteps() {
	k.do(func() {
		if k.running != nil {
			k.running.tidies = true
		}
	})
}

// add makes a task wait for its run.
func (k *controller) add(t *task) {
	if k.ending {
		t.ended(ErrDeleted)
		return
	}
	if k.cache.taken.Load() {
		t.ended(ErrTaken)
		return
	}
	k.tasks++
	t.number = k.tasks
	k.waiting = append(k.waiting, t)
}

// withdraw ends a task that waits.
func (k *controller) withdraw(t *task) {
	if i := slices.Index(k.waiting, t); i >= 0 {
		k.waiting = slices.Delete(k.waiting, i, i+1)
		t.ended(context.Cause(t.ctx))
	}
}

// busy reports whether a task runs or waits that an operation of the application waits for.
func (k *controller) busy() bool {
	return k.running != nil && k.running.rank >= application ||
		slices.ContainsFunc(k.waiting, func(t *task) bool { return t.rank >= application && !t.due.After(time.Now()) })
}

// perform runs an operation of the application as a task, and returns its error. Without wait
// it fails with ErrBusy if the operation would have to wait. An operation that fails because of
// lost memory does not run again.
func (c *Cache) perform(ctx context.Context, wait bool, operation func(ctx context.Context) error) error {
	result := make(chan error, 1)
	t := &task{urgency: urgency{rank: application}, ctx: ctx, operation: operation, ended: func(err error) { result <- err }}
	k := c.controller
	posted := k.mail.post(func() {
		switch {
		case c.deleted.Load():
			t.ended(ErrDeleted)
		case !wait && k.busy():
			t.ended(fmt.Errorf("%w: another control operation runs", ErrBusy))
		default:
			k.add(t)
		}
	})
	if !posted {
		return ErrDeleted
	}
	defer context.AfterFunc(ctx, func() { k.mail.post(func() { k.withdraw(t) }) })()
	return <-result
}
