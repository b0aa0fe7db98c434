package redytier

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// The turn passes first to the leaving of a reclaimed VM, then to the replacement of lost
// memory, then to other operations in the order of their requests. An operation that gives up
// is skipped.
func TestOrderOfTurns(t *testing.T) {
	var turn turn
	now := time.Unix(1_000_000, 0)
	if err := turn.acquire(t.Context(), &claim{urgency: urgency{rank: leaving}}, false); err != nil {
		t.Fatal(err)
	}
	if err := turn.acquire(t.Context(), &claim{}, false); !errors.Is(err, ErrBusy) {
		t.Errorf("the turn is had twice: %v", err)
	}
	impatient, giveUp := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	order := make(chan string, 8)
	for i, c := range []struct {
		name string
		urgency
		ctx context.Context
	}{
		{"asked first", urgency{}, t.Context()},
		{"lost", urgency{rank: restoring}, t.Context()},
		{"gives up", urgency{rank: leaving, deadline: now}, impatient},
		{"second", urgency{rank: leaving, deadline: now.Add(time.Minute)}, t.Context()},
		{"first", urgency{rank: leaving, deadline: now.Add(time.Second)}, t.Context()},
		{"third", urgency{rank: leaving, deadline: now.Add(time.Minute)}, t.Context()},
		{"asked then", urgency{}, t.Context()},
	} {
		go func() {
			err := turn.acquire(c.ctx, &claim{urgency: c.urgency}, true)
			if c.ctx == impatient {
				if !errors.Is(err, gone) {
					t.Errorf("%s: %v", c.name, err)
				}
				order <- "" // it does not hold the turn
				return
			}
			order <- c.name
			turn.release()
		}()
		until(t, func() bool {
			turn.mu.Lock()
			defer turn.mu.Unlock()
			return len(turn.waiting) == i+1
		})
	}
	giveUp(gone)
	<-order
	turn.release()
	var got []string
	for range 6 {
		got = append(got, <-order)
	}
	if want := []string{"first", "second", "third", "lost", "asked first", "asked then"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A holder is preempted by a higher rank, and by no other.
func TestHolderGivesWay(t *testing.T) {
	for _, holder := range []int{voluntary, restoring, leaving} {
		for _, other := range []int{voluntary, restoring, leaving} {
			var turn turn
			ctx, preempt := context.WithCancelCause(t.Context())
			if err := turn.acquire(ctx, &claim{urgency: urgency{rank: holder}, preempt: preempt}, true); err != nil {
				t.Fatal(err)
			}
			waiting, stop := context.WithCancel(t.Context())
			stop()
			if err := turn.acquire(waiting, &claim{urgency: urgency{rank: other}}, true); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if asked := errors.Is(context.Cause(ctx), errPreempted); asked != (other > holder) {
				t.Errorf("rank %d waits for rank %d, which is asked to give way: %v", other, holder, asked)
			}
			preempt(nil)
		}
	}
}

// A VM with an earlier deadline interrupts the leaving of one with a later deadline. A VM with
// nearly the same deadline waits.
func TestEarlierDeadlineInterrupts(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for after, want := range map[time.Duration]bool{-time.Minute: true, -sooner: true, -sooner / 2: false, 0: false, time.Minute: false} {
		running, next := urgency{leaving, now, "a"}, urgency{leaving, now.Add(after), "b"}
		if got := next.interrupts(running); got != want {
			t.Errorf("%v later: interrupts %v, want %v", after, got, want)
		}
		if next.vm = running.vm; next.interrupts(running) {
			t.Errorf("%v later: a notice for the same VM interrupts its leaving", after)
		}
	}
}
