package mem

import (
	"context"
	"fmt"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// spins is how often Wait checks before it parks. The peer is a goroutine of this process, so
// yielding lets it run.
const spins = 16

// queuePair is one end of a connection. State and Waiter are safe for concurrent use; gate
// and the rings are shared with the peer's owner, imports with the goroutine that imports a
// region; the rest belongs to this end's owner.
type queuePair struct {
	provider *provider
	peer     *queuePair
	terms    core.Terms // for the peer's regions

	core.Requests
	imports core.Handles[*core.Region]
	gate    core.Gate // entered while this end accesses the peer's regions

	out core.ImmRing // this end's immediates to the peer
	in  core.ImmRing // the peer's to this end

	core.Waiter
	core.Notified
}

// newQueuePair returns a queue pair of a depth that was checked.
func newQueuePair(p *provider, depth int) *queuePair {
	q := &queuePair{provider: p}
	q.Sends.Init(depth)
	q.InitWaiter()
	return q
}

func (q *queuePair) Import(_ context.Context, token fabric.Token) (fabric.Remote, error) {
	var r *core.Region
	var handle uint32
	err := q.Err()
	if err == nil && !q.terms.Lends(token) {
		err = fabric.ErrBadToken
	}
	if err == nil {
		r, err = q.peer.provider.regions.Find(token)
	}
	if err == nil {
		handle, err = q.imports.Offer(r)
	}
	if err != nil {
		return fabric.Remote{}, fmt.Errorf("import region: %w", err)
	}
	return fabric.Remote{Handle: handle, Size: r.Size()}, nil
}

func (q *queuePair) Release(r fabric.Remote) { q.imports.Delete(r.Handle) }

func (q *queuePair) Submit() error {
	q.Sends.Submit()
	q.execute()
	return q.State.Err()
}

// execute executes submitted operations, up to an immediate for which the peer has no room;
// Poll and Wait continue there.
func (q *queuePair) execute() {
	i, to := q.Sends.Next()
	if i == to {
		return
	}
	q.imports.Adopt()
	q.gate.Enter()
	pushed := false
	// Checked inside the gate: the end of a connection drains the gate, so no copy
	// outlives it.
	if q.State.Err() == nil {
		for ahead := i + 1; i != to; i++ {
			for ; ahead < min(i+core.Ahead, to); ahead++ {
				q.touch(q.Sends.At(ahead))
			}
			s := q.Sends.At(i)
			if s.Err = q.copy(s); s.Err != nil || s.Kind != core.WriteImm {
				continue
			}
			fits, err := q.out.Push(s.Imm, len(s.Buf))
			if s.Err = err; err == nil && !fits {
				break
			}
			pushed = true
		}
	}
	q.gate.Leave()
	q.Sends.Start(i)
	q.Sends.Finish(i)
	if pushed {
		q.peer.Notify()
	}
}

// touch prefetches the memory of an operation that is executed soon.
func (q *queuePair) touch(s *core.Request) {
	if r := q.imports.Get(s.Handle); r != nil {
		(*r).Touch(s.Offset, len(s.Buf))
	}
}

// copy executes one operation. The bytes of an immediate that must wait are copied again
// later.
func (q *queuePair) copy(s *core.Request) error {
	r := q.imports.Get(s.Handle)
	if r == nil {
		return fabric.ErrBadToken
	}
	b, err := (*r).Access(s.Offset, len(s.Buf))
	if err != nil {
		return err
	}
	switch {
	case s.Kind == core.Read:
		copy(s.Buf, b)
	case q.terms.Rights == fabric.ReadOnly:
		return fabric.ErrBadToken
	default:
		copy(b, s.Buf)
	}
	return nil
}

func (q *queuePair) Poll(done []fabric.Completion) int {
	q.Advance()
	if err := q.State.Err(); err != nil {
		q.Sends.Fail(err)
	}
	n := q.Sends.Poll(done)
	m, room, err := q.in.Pop(done[n:])
	if room {
		q.peer.Notify()
	}
	if err != nil {
		q.end(fmt.Errorf("%w: %w", fabric.ErrDisconnected, err))
	}
	return n + m
}

func (q *queuePair) Wait(ctx context.Context) error { return q.Waiter.Wait(ctx, q, spins) }

// Pollable implements core.Source, as do the following methods.
func (q *queuePair) Pollable() bool {
	return q.Sends.Completed() || !q.in.Empty() || (q.State.Err() != nil && q.Sends.Pending())
}

func (q *queuePair) Advance() {
	if q.Sends.Waiting() {
		q.execute()
	}
}

func (q *queuePair) Over() error { return q.State.Err() }

func (q *queuePair) Close() error {
	q.end(fabric.ErrClosed)
	return nil
}

// end ends the connection for both sides, with reason on this one. When it returns, neither
// side copies any more.
func (q *queuePair) end(reason error) {
	if !q.State.End(reason) {
		return
	}
	q.peer.State.End(fabric.ErrDisconnected)
	for _, e := range []*queuePair{q, q.peer} {
		e.gate.Drain()
		e.Notify()
		e.peer.provider.regions.RemoveGate(&e.gate)
		e.provider.pairs.Remove(e)
	}
}
