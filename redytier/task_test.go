package redytier

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// A task preempts less urgent ones, and no other. A VM with an earlier deadline interrupts the
// leaving of one with a later deadline; a VM with nearly the same deadline waits.
func TestWhichTaskInterrupts(t *testing.T) {
	for running := tidying; running <= leaving; running++ {
		for next := tidying; next <= leaving; next++ {
			a, b := &task{urgency: urgency{rank: running}}, &task{urgency: urgency{rank: next}}
			if got := b.interrupts(a); got != (next > running) {
				t.Errorf("rank %d interrupts rank %d: %v", next, running, got)
			}
			if b.patient = true; next != leaving && b.interrupts(a) {
				t.Errorf("rank %d has failed before and interrupts rank %d", next, running)
			}
		}
	}
	left := &task{urgency: urgency{rank: leaving}, tidies: true}
	for next := tidying; next <= leaving; next++ {
		b := &task{urgency: urgency{rank: next, deadline: time.Unix(1_000_000, 0), vm: "b"}}
		if got := b.interrupts(left); got != (next > application) {
			t.Errorf("rank %d interrupts the last steps of rank %d: %v", next, leaving, got)
		}
	}
	now := time.Unix(1_000_000, 0)
	for after, want := range map[time.Duration]bool{-time.Minute: true, -sooner: true, -sooner / 2: false, 0: false, time.Minute: false} {
		running, next := &task{urgency: urgency{leaving, now, "a"}}, &task{urgency: urgency{leaving, now.Add(after), "b"}}
		if got := next.interrupts(running); got != want {
			t.Errorf("%v later: interrupts %v, want %v", after, got, want)
		}
		if next.vm = running.vm; next.interrupts(running) {
			t.Errorf("%v later: a notice for the same VM interrupts its leaving", after)
		}
	}
}

// The controller runs one task at a time: first those that leave reclaimed VMs, then those that
// replace lost memory, then others in the order of their calls. One that gives up is skipped.
func TestOrderOfTasks(t *testing.T) {
	cache := newCluster(t, "mem", 1, 1<<20).create(t, Config{Capacity: 1 << 16, Configuration: oneSided})
	k := cache.controller
	hold, held := make(chan struct{}), make(chan struct{})
	ran := make(chan string, 8)
	run := func(name string, u urgency, ctx context.Context) {
		k.do(func() {
			k.add(&task{urgency: u, ctx: ctx, ended: func(error) {}, operation: func(context.Context) error {
				if name == "first of all" {
					close(held)
					<-hold
				}
				ran <- name
				return nil
			}})
		})
	}
	now := time.Now()
	run("first of all", urgency{rank: leaving, deadline: now}, t.Context())
	testrun.Receive(t, "the first task runs", held)
	gone, giveUp := context.WithCancel(t.Context())
	withdrawn := make(chan error)
	go func() {
		withdrawn <- cache.perform(gone, true, func(context.Context) error { ran <- "withdrawn"; return nil })
	}()
	for name, u := range map[string]urgency{
		"lost":   {rank: restoring},
		"second": {rank: leaving, deadline: now.Add(time.Minute)},
		"first":  {rank: leaving, deadline: now.Add(time.Second)},
		"third":  {rank: leaving, deadline: now.Add(time.Hour)},
		"save":   {rank: saving},
		"mend":   {rank: mending},
		"tidy":   {rank: tidying},
	} {
		run(name, u, t.Context())
	}
	run("called first", urgency{rank: application}, t.Context())
	run("called then", urgency{rank: application}, t.Context())
	if err := cache.perform(t.Context(), false, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("it does not wait for the running task: %v", err)
	}
	giveUp()
	if err := testrun.Receive(t, "the task is withdrawn", withdrawn); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(hold)
	var got []string
	for range 10 {
		got = append(got, testrun.Receive(t, "the next task runs", ran))
	}
	want := []string{"first of all", "first", "second", "third", "lost", "called first", "called then", "mend", "save", "tidy"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The last steps of a task go on when its caller gives up, and end soon when it is preempted.
func TestFinishing(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	task, over := withLate(ctx)
	ctx, end := finishing(task)
	cancel(errors.New("the caller gives up"))
	if ctx.Err() != nil {
		t.Error("it ends with its caller's context")
	}
	if end(); ctx.Err() == nil {
		t.Error("it has no end")
	}
	ctx, end = finishing(task)
	defer end()
	within, end := finishing(ctx)
	defer end()
	over(errPreempted)
	for _, ctx := range []context.Context{ctx, within} {
		testrun.Receive(t, "the last steps end", ctx.Done())
		if cause := context.Cause(ctx); !errors.Is(cause, errPreempted) {
			t.Errorf("it ends with %v", cause)
		}
	}
}

// A task gives way to a more urgent one within 100 ms, also in its last steps, and runs again
// afterwards. The clock is the bubble's.
func TestGivesWayInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Cache{log: slog.New(slog.DiscardHandler)}
		c.ctx, c.cancel = context.WithCancel(t.Context())
		c.table.Store(newTable(1<<16, 1<<16, oneSided))
		k := startController(c)
		run := func(u urgency, operation func(ctx context.Context) error) <-chan error {
			ended := make(chan error, 1)
			k.do(func() {
				k.add(&task{urgency: u, ctx: c.ctx, operation: operation, ended: func(err error) { ended <- err }})
			})
			return ended
		}
		runs := 0
		slow := run(urgency{rank: saving}, func(ctx context.Context) error {
			if runs++; runs > 1 {
				return nil
			}
			<-ctx.Done()
			last, end := finishing(ctx)
			defer end()
			<-last.Done() // as a call that is not answered
			return context.Cause(last)
		})
		synctest.Wait()
		called := time.Now()
		urgent := run(urgency{rank: leaving}, func(context.Context) error {
			if waited := time.Since(called); waited > 100*time.Millisecond {
				t.Errorf("the urgent task waited for %v", waited)
			}
			return nil
		})
		if err := errors.Join(<-urgent, <-slow); err != nil || runs != 2 {
			t.Errorf("%d runs of the preempted task: %v", runs, err)
		}
		c.cancel()
		k.stop()
	})
}

// A task whose caller has given up gives way in its last steps, too.
func TestPreemptedAfterItsCallerGaveUp(t *testing.T) {
	cache := newCluster(t, "mem", 1, 1<<20).create(t, Config{Capacity: 1 << 16, Configuration: oneSided})
	calling, giveUp := context.WithCancel(t.Context())
	last, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_ = cache.perform(calling, true, func(ctx context.Context) error {
			<-ctx.Done()
			steps, end := finishing(ctx)
			defer end()
			close(last)
			<-steps.Done()
			ended <- context.Cause(steps)
			return ctx.Err()
		})
	}()
	testrun.Until(t, "a task runs", func() (running bool) {
		cache.controller.do(func() { running = cache.controller.running != nil })
		return running
	})
	giveUp()
	testrun.Receive(t, "the task takes its last steps", last)
	ran := make(chan struct{})
	cache.controller.do(func() {
		cache.controller.add(&task{
			urgency: urgency{rank: leaving, deadline: time.Now().Add(time.Minute)}, ctx: t.Context(), ended: func(error) {},
			operation: func(context.Context) error { close(ran); return nil },
		})
	})
	if cause := testrun.Receive(t, "the last steps end", ended); !errors.Is(cause, errPreempted) {
		t.Errorf("the last steps end with %v", cause)
	}
	testrun.Receive(t, "the preempting task runs", ran)
}

// A task that has failed before interrupts none, and keeps no other one from doing so.
func TestPatientTaskHidesNone(t *testing.T) {
	preempted := false
	k := &controller{running: &task{urgency: urgency{rank: saving}, preempt: func(error) { preempted = true }}}
	k.waiting = []*task{{urgency: urgency{rank: restoring}, patient: true}}
	if k.dispatch(time.Now()); preempted {
		t.Error("a patient task interrupts another one")
	}
	k.waiting = append(k.waiting, &task{urgency: urgency{rank: application}, due: time.Now().Add(time.Hour)})
	if k.dispatch(time.Now()); preempted {
		t.Error("a task that is not due interrupts another one")
	}
	k.waiting[1].due = time.Time{}
	if k.dispatch(time.Now()); !preempted {
		t.Error("the application's task waits for one that saves")
	}
}
