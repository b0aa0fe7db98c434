package device

import (
	"context"

	"github.com/redykv/redykv/internal/queue"
)

// Wait implements Queue. With operations on one tier alone, the usual case, Wait is that
// tier's. With several, the fastest tier is expected to complete next and is waited for in
// slices: if it stalls, they bound how late the completions of the others are seen.
func (q *tieredQueue) Wait(ctx context.Context) error {
	if q.closed {
		return ErrClosed
	}
	for slices := (queue.Slices{}); ; {
		if q.ready.n == 0 {
			// ready has room: it is empty, and the pending operations bound its contents.
			for _, c := range q.scratch[:q.Poll(q.scratch[:])] {
				q.keep(c)
			}
		}
		first, several := -1, false
		for i, n := range q.pending {
			n -= len(q.echoes[i].active) // nothing waits for echoes
			if n > 0 && first < 0 {
				first = i
			} else if n > 0 {
				several = true
			}
		}
		if q.ready.n > 0 || first < 0 {
			return nil
		}
		var err error
		if several {
			_, err = slices.Wait(ctx, q.queues[first])
		} else {
			err = q.queues[first].Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
}
