package shm

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

func (q *queuePair) Read(dst []byte, r fabric.Remote, offset int64, tag uint64) error {
	return q.push(core.Read, dst, r, offset, 0, tag)
}

func (q *queuePair) Write(src []byte, r fabric.Remote, offset int64, tag uint64) error {
	return q.push(core.Write, src, r, offset, 0, tag)
}

func (q *queuePair) WriteImm(src []byte, r fabric.Remote, offset int64, imm uint32, tag uint64) error {
	return q.push(core.WriteImm, src, r, offset, imm, tag)
}

func (q *queuePair) push(kind core.Kind, buf []byte, r fabric.Remote, offset int64, imm uint32, tag uint64) error {
	if err := q.state.Err(); err != nil {
		return err
	}
	return q.sends.Push(kind, buf, r, offset, imm, tag)
}

func (q *queuePair) Submit() error {
	if q.state.Err() == nil {
		q.sends.Submit()
		q.execute()
	}
	return q.state.Err()
}

// execute carries out what is rung, up to an immediate that the peer has no room
// for; Poll and Wait go on from there.
func (q *queuePair) execute() {
	i, to := q.sends.Next()
	if i == to {
		return
	}
	q.gate.Enter()
	told, wake := false, false
	if q.state.Err() == nil {
		for ; i != to; i++ {
			s := q.sends.At(i)
			r := q.imports.Get(s.Handle)
			if r == nil {
				s.Err = fabric.ErrBadToken
				continue
			}
			if s.Err = r.access(s.Kind, s.Buf, s.Offset); s.Err != nil || s.Kind != core.WriteImm {
				continue
			}
			pushed, err := q.out.Push(s.Imm, len(s.Buf))
			if s.Err = err; err == nil && !pushed {
				break
			}
			told = true
		}
		wake = told && q.out.TakeParked()
	}
	q.gate.Leave()
	q.sends.Start(i)
	q.sends.Finish(i)
	if wake {
		q.wakePeer()
	}
}

// wakePeer sends the peer's reader a message. A dying connection may lose it, and
// so may a full one: a peer that does not read its socket must not hold up an
// owner who serves others as well, and has wake-ups enough to read.
func (q *queuePair) wakePeer() { _ = q.raw.Control(sendWake) }

var wakeMessage = []byte{kindWake}

func sendWake(fd uintptr) {
	_ = unix.Send(int(fd), wakeMessage, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

func (q *queuePair) Poll(done []fabric.Completion) int {
	if q.sends.Waiting() {
		q.execute()
	}
	if err := q.state.Err(); err != nil {
		q.sends.Fail(err)
	}
	n := q.sends.Poll(done)
	return n + q.receive(done[n:])
}

// receive takes over the peer's immediates.
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
		q.state.End(fmt.Errorf("%w: %w", fabric.ErrDisconnected, err))
	}
	return n
}

func (q *queuePair) Wait(ctx context.Context) error {
	if err := q.waiter.Wait(ctx, q, spins); err != nil {
		return err
	}
	if err := q.state.Err(); err != nil && !q.pollable() {
		return err
	}
	return nil
}

// Ready is core.Source.
func (q *queuePair) Ready() bool {
	if q.sends.Waiting() {
		q.execute()
	}
	return q.pollable() || q.state.Err() != nil
}

func (q *queuePair) pollable() bool {
	if q.sends.Completed() || (q.state.Err() != nil && q.sends.UnderWay()) {
		return true
	}
	q.gate.Enter()
	defer q.gate.Leave()
	return !q.gone.Load() && !q.in.Empty()
}

// Park is core.Source: it asks the peer's process for a wake-up.
func (q *queuePair) Park() {
	q.gate.Enter()
	defer q.gate.Leave()
	if !q.gone.Load() {
		q.in.Park()
	}
}

// Unpark is core.Source.
func (q *queuePair) Unpark() {
	q.gate.Enter()
	defer q.gate.Leave()
	if !q.gone.Load() {
		q.in.Unpark()
	}
}
