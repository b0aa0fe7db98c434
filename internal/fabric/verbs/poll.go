//go:build verbs && linux && cgo

package verbs

// #include "queue.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
	"github.com/redykv/redykv/internal/fabric/verbs/wire"
)

// spins is how often Wait checks before it parks: tens of microseconds, in which a working peer
// answers.
const spins = 256

func (q *queuePair) Submit() error {
	if !q.ended() {
		q.Sends.Submit()
		q.Advance()
	}
	return q.State.Err()
}

// Advance makes progress. Called by the owner.
func (q *queuePair) Advance() {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.over.Load():
		q.Sends.Fail(q.State.Err())
	case !q.ended():
		q.step()
	}
}

func (q *queuePair) Poll(done []fabric.Completion) int {
	if q.Sends.Waiting() || !q.Sends.Completed() && q.in.Empty() {
		q.Advance()
	}
	n := q.Sends.Poll(done)
	m, _, err := q.in.Pop(done[n:])
	if err != nil {
		q.fail(err) // cannot happen: both sides of this ring are this process's
	}
	if q.taken += m; q.taken >= core.ImmEntries/4 {
		q.replenish()
	}
	return n + m
}

// replenish posts receives in place of used ones, and gives the peer as much credit.
func (q *queuePair) replenish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended() {
		return
	}
	n := q.taken
	q.taken = 0
	for left := n; left > 0; {
		k := min(left, core.ImmEntries-q.next)
		if err := q.rdma.receive(q.next, k); err != nil {
			q.fail(err)
			return
		}
		q.next = (q.next + k) % core.ImmEntries
		left -= k
	}
	q.control.send(wire.Frame{Kind: wire.Credit, Number: uint32(n)})
}

func (q *queuePair) Wait(ctx context.Context) error { return q.Waiter.Wait(ctx, q, spins) }

// Pollable implements core.Source, as do the following methods.
func (q *queuePair) Pollable() bool {
	return q.Sends.Completed() || !q.in.Empty() || (q.over.Load() && q.Sends.Pending())
}

func (q *queuePair) Over() error {
	if q.over.Load() {
		return q.State.Err()
	}
	return nil
}

// Park requests an event for the next completion; drain notifies the owner.
func (q *queuePair) Park() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arm()
}

// Unpark leaves the event requested: it wakes nobody.
func (q *queuePair) Unpark() {}

// arm requests an event. Called with mu held.
func (q *queuePair) arm() {
	if q.ended() {
		return
	}
	if n := C.queue_arm(q.rdma.queue); n != 0 {
		q.fail(fmt.Errorf("request completion events: %w", errno(n)))
	}
}

// drain takes completion events, notifies the owner, and settles loans that wait for operations
// to end.
func (q *queuePair) drain() {
	event := func() error {
		if n := C.queue_event(q.rdma.queue); n != 0 {
			return errno(n)
		}
		return nil
	}
	for {
		if err := q.rdma.completions.await(event); err != nil {
			if !errors.Is(err, os.ErrClosed) {
				q.fail(err)
			}
			return
		}
		q.mu.Lock()
		err := q.settleLoans()
		q.mu.Unlock()
		if err != nil {
			q.fail(err)
		}
		q.Notify()
	}
}

// settleLoans takes completions for the owner, now and at the next event, while a revoked loan
// waits for them: the owner need not poll. Called with mu held.
func (q *queuePair) settleLoans() error {
	if q.retiring == 0 || q.ended() {
		return nil
	}
	q.arm()
	return q.take()
}
