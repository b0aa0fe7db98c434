package device

import (
	"errors"
	"fmt"
	"math/bits"
)

// Write implements Queue. It returns ErrQueueFull while a tier beyond the commit point is
// too far behind.
func (q *tieredQueue) Write(src []byte, addr int64, tag uint64) error {
	if err := q.admit(); err != nil {
		return err
	}
	if q.mustWait(len(src)) {
		return ErrQueueFull
	}
	id := q.take(src, addr, tag, opWrite)
	op := &q.ops[id]
	op.began = sinceEpoch()
	if err := checkRange(len(src), addr); err != nil {
		op.err = err
	} else {
		op.set, op.answering = q.t.admit(len(src), addr)
	}
	for set := op.set; set != 0; set &= set - 1 {
		i := bits.TrailingZeros32(set)
		if q.t.detached(i) {
			q.echo(i, src, addr)
			op = &q.ops[id] // ops may have moved
			continue
		}
		err := q.open(i)
		if err == nil {
			err = q.hand(i, id)
		}
		if err != nil {
			q.wrote(op, i, err)
			continue
		}
		op.pending |= 1 << i
		q.counters[i].behind.Add(int64(len(src)))
		q.pending[i]++
		q.dirty |= 1 << i
	}
	if c, ok := q.settle(id); ok {
		q.keep(c)
	}
	return nil
}

// wrote accounts for the end of a write on tier i. A Refiller that returned ErrNotHeld has
// a hole there and stays in the set.
func (q *tieredQueue) wrote(op *tieredOp, i int, err error) {
	tr := q.t.tiers[i]
	if err != nil {
		err = fmt.Errorf("device: tier %s: write of %d bytes at %d: %w", tr.name, len(op.buf), op.addr, err)
		op.err = errors.Join(op.err, err)
		q.counts[i].writeErrors++
		if tr.refiller == nil || !errors.Is(err, ErrNotHeld) {
			q.t.fail(tr, err)
		}
		if tr == q.t.last() {
			q.t.lacks(len(op.buf), op.addr)
		}
	} else {
		op.held |= op.answering & (1 << i)
		q.counts[i].bytesWritten += uint64(len(op.buf))
		q.counters[i].writes.add(sinceEpoch() - op.began)
		if tr == q.t.last() {
			q.t.recovered(tr)
		}
	}
	tr.writes.Add(-1) // after fail and lacks: see tier.writes
}

// settle returns the event that a write has reached, if any.
func (q *tieredQueue) settle(id uint32) (Completion, bool) {
	op := &q.ops[id]
	c := Completion{Tag: op.tag, N: len(op.buf)}
	if op.pending != 0 {
		before := uint32(1)<<(q.t.commit+1) - 1
		durable := uint32(1)<<q.t.commit | 1<<(len(q.queues)-1) // what is between may be gone after a restart
		if op.state == opCommitted || op.pending&before != 0 || op.held&durable == 0 {
			return Completion{}, false
		}
		op.state = opCommitted
		c.Event = Committed
		return c, true
	}
	if op.state == opCommitted {
		c.Event = Released
	}
	if op.held>>(len(q.queues)-1) == 0 {
		c.N, c.Err = 0, op.err
	}
	if op.set != 0 {
		q.t.ended(len(op.buf), op.addr, c.Err == nil)
	}
	return q.end(id, c), true
}
