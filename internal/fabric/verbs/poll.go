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

// spins is how often a Wait looks before it parks: tens of microseconds, in which
// a peer that works answers.
const spins = 256

func (q *queuePair) Submit() error {
	if !q.ended() {
		q.Sends.Submit()
		q.Advance()
	}
	return q.State.Err()
}

// Advance does what there is to do: owner.
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
		q.fail(err) // both sides of this ring are ours: never
	}
	if q.taken += m; q.taken >= core.ImmEntries/4 {
		q.replenish()
	}
	return n + m
}

// replenish posts receives for those that immediates took, and lets the peer send
// so many more.
func (q *queuePair) replenish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended() {
		return
	}
	n := q.taken
	q.taken = 0
	for left := n; left > 0; {
		k := min(left, core.ImmEntries-q.slot)
		if err := q.rdma.receive(q.slot, k); err != nil {
			q.fail(err)
			return
		}
		q.slot = (q.slot + k) % core.ImmEntries
		left -= k
	}
	q.control.send(wire.Frame{Kind: wire.Credit, Number: uint32(n)})
}

func (q *queuePair) Wait(ctx context.Context) error { return q.waiter.Wait(ctx, q, spins) }

// Pollable is core.Source, as are those that follow.
func (q *queuePair) Pollable() bool {
	return q.Sends.Completed() || !q.in.Empty() || (q.over.Load() && q.Sends.UnderWay())
}

func (q *queuePair) Over() error {
	if q.over.Load() {
		return q.State.Err()
	}
	return nil
}

// Park has the next completion be an event, of which drain tells.
func (q *queuePair) Park() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arm()
}

func (q *queuePair) Unpark() {}

// arm asks for an event. With mu held.
func (q *queuePair) arm() {
	if q.ended() {
		return
	}
	if n := C.queue_arm(q.rdma.queue); n != 0 {
		q.fail(fmt.Errorf("ask for completion events: %w", errno(n)))
	}
}

// drain takes the events of completions, tells the owner, and looks after loans
// that wait for operations to end.
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
		q.waiter.Notify()
	}
}

// settleLoans takes completions on the owner's behalf, now and at the next event,
// while a dead loan waits for them: the owner need not poll. With mu held.
func (q *queuePair) settleLoans() error {
	if q.retiring == 0 || q.ended() {
		return nil
	}
	q.arm()
	return q.take()
}
