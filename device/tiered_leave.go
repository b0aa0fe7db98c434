package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redykv/redykv/internal/queue"
)

// What Close does not wait for (TieredOptions.CloseWait) is left to goroutines, with the queues
// and buffers in use. The last of a tier's goroutines closes it. A tier that never ends an
// operation keeps the goroutine and stays open.

// leaveLimit bounds how late a completion of a tier is seen while another is waited for.
const leaveLimit = 100 * time.Millisecond

// endEchoes waits for echoes, and returns the tiers that still have some: those that are
// out, and those that take too long, which leave the set.
func (q *tieredQueue) endEchoes() (left []int) {
	ctx, cancel := context.WithTimeout(context.Background(), q.t.opts.CloseWait)
	defer cancel()
	for i := range q.echoes {
		tr := q.t.tiers[i]
		for len(q.echoes[i].active) > 0 && !tr.out() {
			q.stepEchoes(i)
			if len(q.echoes[i].active) == 0 {
				break
			}
			err := q.queues[i].Wait(ctx)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				q.t.fail(tr, fmt.Errorf("%w: %d bytes were pending when their queue was closed: %w",
					ErrBehind, q.counters[i].behind.Load(), err))
			}
		}
		if q.absorb(i); len(q.echoes[i].active) > 0 {
			left = append(left, i)
			q.t.leave(tr)
		}
	}
	return left
}

// stepEchoes gives tier i what waits for room in its queue, and polls it.
func (q *tieredQueue) stepEchoes(i int) {
	q.handLate(i)
	q.absorb(i)
	if q.dirty&(1<<i) == 0 {
		return
	}
	q.dirty &^= 1 << i
	if err := q.ring(i); err != nil {
		q.t.fail(q.t.tiers[i], err)
	}
}

// endLeft ends the echoes of tiers, and then the queue, which has no other user. It runs on
// its own goroutine.
func (q *tieredQueue) endLeft(left []int) {
	for slices := (queue.Slices{Longest: leaveLimit}); len(left) > 0; {
		i := left[0]
		var err error
		if len(left) > 1 {
			_, err = slices.Wait(context.Background(), q.queues[i])
		} else {
			err = q.queues[i].Wait(context.Background())
		}
		// After an error the queue cannot be waited for.
		if q.stepEchoes(i); len(q.echoes[i].active) > 0 && err == nil {
			left = append(left[1:], i)
			continue
		}
		if err := q.queues[i].Close(); err != nil {
			q.t.opts.Logger.Warn("closing a queue of a slow tier in the background failed", "tier", q.t.tiers[i].name, "err", err)
		}
		left = left[1:]
		q.t.left(q.t.tiers[i])
	}
	q.retire()
}

// syncTier syncs a tier. It waits for a detached tier for a limited time, and leaves a longer
// sync to a goroutine.
func (t *Tiered) syncTier(tr *tier) error {
	if !t.detached(tr.index) {
		return tr.dev.Sync()
	}
	wait := t.opts.CloseWait
	if wait < 0 {
		wait = DefaultCloseWait
	}
	result := make(chan error, 1)
	t.leave(tr)
	go func() {
		err := tr.dev.Sync()
		t.left(tr)
		result <- err
	}()
	came, err := within(wait, result)
	if !came {
		return fmt.Errorf("%w: sync takes longer than %v", ErrBehind, wait)
	}
	return err
}

// within waits for a result for at most wait, and reports whether it arrived.
func within(wait time.Duration, result <-chan error) (came bool, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-result:
		return true, err
	case <-timer.C:
		return false, nil
	}
}

// leave notes that a queue, a start or a sync of a tier is left to a goroutine.
func (t *Tiered) leave(tr *tier) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr.leave()
}

// leave is Tiered.leave for callers that hold mu.
func (tr *tier) leave() {
	if tr.leaving == 0 {
		tr.gone = make(chan struct{})
	}
	tr.leaving++
}

// left notes that it has ended. The last one closes the tier if it is to be closed.
func (t *Tiered) left(tr *tier) {
	t.mu.Lock()
	tr.leaving--
	last := tr.leaving == 0
	if last {
		close(tr.gone)
	}
	closing := last && tr.closeLater
	t.mu.Unlock()
	if !closing {
		return
	}
	if err := tr.dev.Close(); err != nil {
		t.opts.Logger.Warn("closing a slow tier in the background failed", "tier", tr.name, "err", err)
	}
}

// closeTier closes a tier, or leaves that to the goroutine that ends its last queue.
func (t *Tiered) closeTier(ctx context.Context, tr *tier) error {
	t.mu.Lock()
	gone := tr.gone
	t.mu.Unlock()
	if gone != nil {
		select {
		case <-gone:
		case <-ctx.Done():
		}
	}
	t.mu.Lock()
	tr.closeLater = tr.leaving > 0
	later := tr.closeLater
	t.mu.Unlock()
	if later {
		t.opts.Logger.Warn("a storage tier still has pending operations, it is closed in the background", "tier", tr.name)
		return nil
	}
	// The error of a tier that is out was reported already.
	if err := tr.dev.Close(); err != nil && !tr.out() {
		return fmt.Errorf("device: close tier %s: %w", tr.name, err)
	}
	return nil
}

// retire adds the queue's counters to those of the tiers.
func (q *tieredQueue) retire() {
	q.publish()
	q.t.mu.Lock()
	defer q.t.mu.Unlock()
	delete(q.t.queues, q)
	for i, tr := range q.t.tiers {
		tr.retired.merge(&q.counters[i])
	}
}

// closeTiers closes the tiers' queues, except those that are left. Errors of tiers that are
// out were reported already.
func (q *tieredQueue) closeTiers(left []int) error {
	var errs []error
	for i, inner := range q.queues {
		if inner == nil || slices.Contains(left, i) {
			continue
		}
		if err := inner.Close(); err != nil && !q.t.tiers[i].out() {
			errs = append(errs, fmt.Errorf("device: tier %s: %w", q.t.tiers[i].name, err))
		}
	}
	return errors.Join(errs...)
}
