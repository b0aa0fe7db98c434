package device

import (
	"context"
	"errors"
	"time"
)

// While several tiers have operations under way, Wait parks on the fastest of
// them for a slice of time that grows from firstSlice to lastSlice.
const (
	firstSlice = 200 * time.Microsecond
	lastSlice  = 4 * time.Millisecond
)

// Wait implements Queue. A tier's queue can only be waited for by itself, and
// some do their work in the waiting. With operations on one tier alone, the
// usual case, Wait is that tier's. With several, the fastest is expected to be
// the next to complete: waiting on it costs nothing while that holds, and where
// it does not, because that tier stalls, the slices bound how late the
// completions of the others are seen. Nothing is lost either way, since a
// completion stays in its tier's queue until it is polled.
func (q *tieredQueue) Wait(ctx context.Context) error {
	if q.closed {
		return ErrClosed
	}
	for slice := firstSlice; ; slice = min(2*slice, lastSlice) {
		if q.ready.n == 0 {
			// ready has room: it is empty, and the slots bound its contents.
			for _, c := range q.scratch[:q.Poll(q.scratch[:])] {
				q.keep(c)
			}
		}
		first, several := -1, false
		for i, n := range q.under {
			n -= len(q.echoes[i].active) // nobody waits for these
			if n > 0 && first < 0 {
				first = i
			} else if n > 0 {
				several = true
			}
		}
		if q.ready.n > 0 || first < 0 {
			return nil
		}
		if err := q.waitOn(ctx, first, several, slice); err != nil {
			return err
		}
	}
}

// waitOn waits on tier i, for no longer than the slice if others are under way.
func (q *tieredQueue) waitOn(ctx context.Context, i int, others bool, slice time.Duration) error {
	if !others {
		return q.queues[i].Wait(ctx)
	}
	sliced, cancel := context.WithTimeout(ctx, slice)
	defer cancel()
	err := q.queues[i].Wait(sliced)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
