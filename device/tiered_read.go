package device

import (
	"errors"
	"fmt"
)

// sampled is a mask: one read in 64 is measured, because reading the clock takes as long
// as a read of memory.
const sampled = 1<<6 - 1

// maxBadReads is the number of consecutive failed reads on one queue after which a tier
// leaves the set.
const maxBadReads = 64

func (q *tieredQueue) Read(dst []byte, addr int64, tag uint64) error {
	if err := q.admit(); err != nil {
		return err
	}
	id := q.take(dst, addr, tag, opRead)
	if q.reads++; q.reads&sampled == 0 {
		q.ops[id].began = sinceEpoch()
		if q.all {
			q.lookAtTiers()
		}
	}
	if c, over := q.route(id, 0); over {
		q.keep(c)
	}
	return nil
}

// lookAtTiers starts tiers that are out again, and opens queues on those that are back.
func (q *tieredQueue) lookAtTiers() {
	out := false
	for i, tr := range q.t.tiers {
		if tr.out() {
			out = true
		} else {
			_ = q.open(i) // a tier that gives no queue has left the set
		}
	}
	if out {
		q.t.revive()
	}
}

// route sends a read to the first tier from number i on that answers for its address. If
// there is none, it returns the event that ends the read.
func (q *tieredQueue) route(id uint32, i int) (Completion, bool) {
	op := &q.ops[id]
	for ; i < len(q.queues); i++ {
		if q.queues[i] == nil || !q.t.tiers[i].mayRead(len(op.buf), op.addr) {
			continue
		}
		err := q.hand(i, id)
		if err == nil {
			op.tier = uint8(i)
			q.pending[i]++
			q.dirty |= 1 << i
			return Completion{}, false
		}
		q.readFailed(op, i, err)
	}
	if op.err == nil || !q.t.last().holds(op.addr) {
		// The last tier was not asked.
		op.err = errors.Join(op.err,
			fmt.Errorf("device: no tier holds %d bytes at %d: %w", len(op.buf), op.addr, ErrNotHeld))
	}
	return q.end(id, Completion{Tag: op.tag, Err: op.err, Tier: op.tier}), true
}

// hits is the fast path of settled: it turns completed reads of tier i into events in
// place, up to the first completion that is anything else, and returns their number.
func (q *tieredQueue) hits(i int, done []Completion) (n int) {
	// Loaded after the reads have ended: see settleRead.
	tr := q.t.tiers[i]
	begin := max(tr.floor.Load(), tr.dev.Begin())
	bytes := 0
	for n < len(done) {
		c := &done[n]
		if c.Tag >= uint64(len(q.ops)) {
			break
		}
		op := &q.ops[c.Tag]
		if op.state != opRead || int(op.tier) != i || c.Err != nil || c.N != len(op.buf) || op.addr < begin {
			break
		}
		if op.began != 0 {
			q.counters[i].reads.add(sinceEpoch() - op.began)
			op.began = 0
		}
		q.free = append(q.free, uint32(c.Tag))
		c.Tag, c.Event, c.Tier = op.tag, Done, uint8(i)
		op.state, op.buf, op.err = opFree, nil, nil
		bytes += c.N
		n++
	}
	if n > 0 {
		q.pending[i] -= n
		q.badRead[i] = 0
		q.counts[i].hits += uint64(n)
		q.counts[i].bytesRead += uint64(bytes)
	}
	return n
}

func (q *tieredQueue) settleRead(id uint32, i int, err error) (Completion, bool) {
	op := &q.ops[id]
	switch {
	case err != nil:
		q.readFailed(op, i, err)
	case !q.t.tiers[i].holds(op.addr):
		// The tier released the address during the read: the bytes may be those of
		// another address.
		q.counts[i].fallThroughs++
	default:
		q.badRead[i] = 0
		q.counts[i].hits++
		q.counts[i].bytesRead += uint64(len(op.buf))
		if op.began != 0 {
			q.counters[i].reads.add(sinceEpoch() - op.began)
		}
		return q.end(id, Completion{Tag: op.tag, N: len(op.buf), Tier: uint8(i)}), true
	}
	if op.began != 0 {
		op.began = sinceEpoch() // measures the next tier
	}
	return q.route(id, i+1)
}

// badReads returns how many reads tiers have failed.
func (q *tieredQueue) badReads() (n uint64) {
	for i := range q.counters {
		n += q.counts[i].readErrors + q.counters[i].readErrors.Load()
	}
	return n
}

// readFailed accounts for a read that tier i failed. ErrNotHeld does not count as a
// failure of the tier: one with holes returns it often.
func (q *tieredQueue) readFailed(op *tieredOp, i int, err error) {
	q.counts[i].fallThroughs++
	ill := !errors.Is(err, ErrNotHeld)
	if ill {
		err = fmt.Errorf("device: tier %s: %w", q.t.tiers[i].name, err)
	}
	if op.err == nil {
		op.err = err
	} else {
		op.err = errors.Join(op.err, err)
	}
	if !ill {
		return
	}
	q.counts[i].readErrors++
	if q.badRead[i]++; q.badRead[i] >= maxBadReads {
		q.badRead[i] = 0
		if tr := q.t.tiers[i]; tr != q.t.last() {
			q.t.fail(tr, fmt.Errorf("%d reads failed in a row: %w", maxBadReads, err))
		}
	}
}
