//go:build linux

package shm

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

func (q *queuePair) Submit() error {
	if q.State.Err() == nil {
		q.Sends.Submit()
		q.execute()
	}
	return q.State.Err()
}

// execute executes submitted operations, up to an immediate for which the peer has no room;
// Poll and Wait continue there.
func (q *queuePair) execute() {
	i, to := q.Sends.Next()
	if i == to {
		return
	}
	q.gate.Enter()
	pushed, wake := false, false
	if q.State.Err() == nil {
		q.imports.Adopt()
		for ahead := max(i+1, q.touched); i != to; i++ {
			for ; ahead < min(i+core.Ahead, to); ahead++ {
				q.touch(q.Sends.At(ahead))
			}
			s := q.Sends.At(i)
			r := q.imports.Get(s.Handle)
			if r == nil {
				s.Err = fabric.ErrBadToken
				continue
			}
			if s.Err = r.access(s.Kind, s.Buf, s.Offset); s.Err != nil || s.Kind != core.WriteImm {
				continue
			}
			fits, err := q.out.Push(s.Imm, len(s.Buf))
			if s.Err = err; err == nil && !fits {
				break
			}
			pushed = true
		}
		wake = pushed && q.out.TakeParked()
	}
	q.gate.Leave()
	q.Sends.Start(i)
	q.Sends.Finish(i)
	if wake {
		q.wakePeer()
	}
}

// Prefetch implements fabric.Prefetcher.
func (q *queuePair) Prefetch() {
	i, to := q.Sends.Enqueued()
	q.gate.Enter()
	if q.State.Err() == nil {
		for to = min(to, i+core.Ahead); i != to; i++ {
			q.touch(q.Sends.At(i))
		}
		q.touched = i
	}
	q.gate.Leave()
}

// touch prefetches the memory of an operation that is executed soon.
func (q *queuePair) touch(s *core.Request) {
	if r := q.imports.Get(s.Handle); r != nil {
		core.Touch(r.mapping, s.Offset, len(s.Buf))
	}
}

// wakePeer sends a wake-up to the peer's reader. A broken connection may lose it, and so may
// a full one: a peer that does not read its socket must not block an owner that serves
// others, and it has earlier wake-ups to read.
func (q *queuePair) wakePeer() { _ = q.raw.Control(sendWake) }

var wakeMessage = []byte{kindWake}

func sendWake(fd uintptr) {
	_ = unix.Send(int(fd), wakeMessage, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

func (q *queuePair) Poll(done []fabric.Completion) int {
	q.Advance()
	if err := q.State.Err(); err != nil {
		q.Sends.Fail(err)
	}
	n := q.Sends.Poll(done)
	return n + q.receive(done[n:])
}

// receive takes the peer's immediates from the ring.
func (q *queuePair) receive(done []fabric.Completion) (n int) {
	var wake bool
	var err error
	q.gate.Enter()
	if !q.gone.Load() {
		n, wake, err = q.in.Pop(done)
	}
	q.gate.Leave()
	if wake {
		q.wakePeer()
	}
	if err != nil {
		q.end(fmt.Errorf("%w: %w", fabric.ErrDisconnected, err))
	}
	return n
}

func (q *queuePair) Wait(ctx context.Context) error { return q.Waiter.Wait(ctx, q, spins) }

// Pollable implements core.Source, as do the following methods.
func (q *queuePair) Pollable() bool {
	if q.Sends.Completed() || (q.State.Err() != nil && q.Sends.Pending()) {
		return true
	}
	q.gate.Enter()
	defer q.gate.Leave()
	return !q.gone.Load() && !q.in.Empty()
}

func (q *queuePair) Advance() {
	if q.Sends.Waiting() {
		q.execute()
	}
}

func (q *queuePair) Over() error { return q.State.Err() }

// Park asks the peer's process for a wake-up.
func (q *queuePair) Park() {
	q.gate.Enter()
	defer q.gate.Leave()
	if !q.gone.Load() {
		q.in.Park()
	}
}

func (q *queuePair) Unpark() {
	q.gate.Enter()
	defer q.gate.Leave()
	if !q.gone.Load() {
		q.in.Unpark()
	}
}
