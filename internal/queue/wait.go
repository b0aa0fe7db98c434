package queue

import (
	"context"
	"errors"
	"time"
)

// Waiter is a queue, as far as waiting for it goes.
type Waiter interface {
	// Wait returns when there is something to poll, or when ctx ends.
	Wait(ctx context.Context) error
}

// Slices are the waits of a queue over several others. A queue can only be waited for by
// itself, and some do their work in the waiting. While several have pending operations,
// each Wait parks on one of them for a slice of time that grows from 200 µs to Longest, so
// that a completion of another one is seen that late at most. Nothing is lost: a completion
// stays in its queue until it is polled.
type Slices struct {
	Longest time.Duration // 4 ms if 0
	last    time.Duration
}

const (
	firstSlice   = 200 * time.Microsecond
	longestSlice = 4 * time.Millisecond
)

// Wait waits on q for the next slice. expired reports that the slice ended first.
func (s *Slices) Wait(ctx context.Context, q Waiter) (expired bool, err error) {
	longest := s.Longest
	if longest == 0 {
		longest = longestSlice
	}
	s.last = min(max(2*s.last, firstSlice), longest)
	sliced, cancel := context.WithTimeout(ctx, s.last)
	defer cancel()
	err = q.Wait(sliced)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return true, nil
	}
	return false, err
}

// Drain polls a queue that is going to be closed until pending returns 0.
func Drain[C any](q interface {
	Waiter
	Poll(done []C) int
}, pending func() int) error {
	var done [16]C
	for pending() > 0 {
		if err := q.Wait(context.Background()); err != nil {
			return err
		}
		q.Poll(done[:])
	}
	return nil
}
