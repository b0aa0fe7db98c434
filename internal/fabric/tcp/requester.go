package tcp

import (
	"context"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/fabric/core"
)

// enough is the number of bytes in the outbox from which the owner adds no further requests.
// Poll and Wait continue when there is room.
const enough = 256 << 10

func (q *queuePair) Submit() error {
	if q.State.Err() == nil {
		q.Sends.Submit()
		q.pump()
	}
	return q.State.Err()
}

// pump sends requests until there are none, or the window, the credit or the outbox is used
// up.
func (q *queuePair) pump() {
	i, to := q.Sends.Next()
	if i == to {
		return
	}
	q.imports.Adopt()
	q.out.mu.Lock()
	defer q.out.mu.Unlock()
	for i != to && q.out.err == nil && q.out.pending() < enough && q.request(q.Sends.At(i)) {
		if q.issued < 0 {
			q.issued = 0
			i++
		}
	}
	q.Sends.Start(i)
	q.out.flush()
}

// request sends the next fragment of an operation, and sets issued to -1 after the last one.
// It returns false if the peer must answer first.
func (q *queuePair) request(s *core.Request) bool {
	if q.cost-q.repaid.Load() > window {
		return false
	}
	f := frame{kind: kindNop}
	var body []byte
	r := q.imports.Get(s.Handle)
	if q.issued == 0 {
		if s.Err = check(r, s); s.Err != nil {
			q.issued = -1 // a nop, so that its completion keeps its place
		}
	}
	if q.issued >= 0 {
		n := min(int64(len(s.Buf))-q.issued, maxFragment)
		last := q.issued+n == int64(len(s.Buf))
		f = frame{handle: r.handle, offset: s.Offset + q.issued, length: uint32(n), imm: s.Imm}
		switch {
		case s.Kind == core.Read:
			f.kind = kindRead
		case s.Kind == core.WriteImm && last:
			if q.imms-q.granted.Load() >= core.ImmEntries {
				return false
			}
			q.imms++
			f.kind = kindWriteImm
		default:
			f.kind = kindWrite
			if !last {
				f.flags = flagMore
			}
		}
		if s.Kind != core.Read {
			body = s.Buf[q.issued : q.issued+n]
		}
		q.cost += uint64(n)
		if q.issued += n; last {
			q.issued = -1
		}
	}
	q.cost += requestCost
	q.requests.Add(1) // publishes the request to the reader
	q.out.buf = appendHeader(q.out.buf, &f)
	q.out.append(body)
	return true
}

func check(r *remote, s *core.Request) error {
	if r == nil {
		return fabric.ErrBadToken
	}
	return core.CheckBounds(s.Offset, len(s.Buf), r.size)
}

func (q *queuePair) Poll(done []fabric.Completion) int {
	if q.over.Load() {
		q.Sends.Fail(q.State.Err())
	} else if q.Sends.Waiting() {
		q.pump()
	}
	n := q.Sends.Poll(done)
	m, _, err := q.in.Pop(done[n:])
	if err != nil {
		q.State.End(err) // cannot happen: both sides of this ring are this process's
	}
	q.taken += uint32(m)
	if q.taken >= core.ImmEntries/4 {
		q.send(&frame{kind: kindCredit, length: q.taken})
		q.taken = 0
	}
	return n + m
}

func (q *queuePair) Wait(ctx context.Context) error {
	// No spinning: the network poller delivers completions, and spinning would delay
	// it.
	return q.Waiter.Wait(ctx, q, 0)
}

// Pollable implements core.Source, as do the following methods.
func (q *queuePair) Pollable() bool {
	return q.Sends.Completed() || !q.in.Empty() || (q.over.Load() && q.Sends.Pending())
}

func (q *queuePair) Advance() {
	if q.Sends.Waiting() && !q.over.Load() {
		q.pump()
	}
}

func (q *queuePair) Over() error {
	if q.over.Load() {
		return q.State.Err()
	}
	return nil
}
