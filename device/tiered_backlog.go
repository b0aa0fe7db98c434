package device

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/internal/mem"
)

// BacklogPolicy determines what happens when a tier beyond the commit point is behind by
// its whole backlog.
type BacklogPolicy uint8

const (
	// BacklogWait delays writes until the tier has caught up. A write's buffer is Released
	// when the tier has stored it.
	BacklogWait BacklogPolicy = iota
	// BacklogDrop takes the tier out of the set, as if it had failed: it returns when its
	// pending writes have ended, and what it lacks is copied back in the background. The
	// tier gets copies of the data, so no write waits for it. The last tier, which must
	// hold everything, is waited for nevertheless.
	BacklogDrop
)

// DefaultBacklog is the default of TieredOptions.Backlog, in bytes.
const DefaultBacklog = 64 << 20

// ErrBehind is the error of a tier that was further behind than TieredOptions.Backlog.
var ErrBehind = errors.New("device: tier is too far behind")

// tooFar reports whether n more bytes would put tier i too far behind.
func (q *tieredQueue) tooFar(i, n int) bool {
	limit := q.t.opts.Backlog
	if limit < 0 { // an operation's place in the queue is the limit, but copies need none
		return q.t.detached(i) && len(q.echoes[i].active)+len(q.echoes[i].waiting) >= q.depth
	}
	behind := q.counters[i].behind.Load()
	return behind > 0 && behind+int64(n) > limit
}

// mustWait reports whether a write of n bytes has to wait for a tier beyond the commit
// point.
func (q *tieredQueue) mustWait(n int) bool {
	for i := q.t.commit + 1; i < len(q.queues); i++ {
		if !q.t.detached(i) && !q.t.tiers[i].out() && q.tooFar(i, n) {
			return true
		}
	}
	return false
}

// detached reports whether no write waits for tier i: it gets echoes.
func (t *Tiered) detached(i int) bool {
	return t.opts.BacklogPolicy == BacklogDrop && i > t.commit && i < len(t.tiers)-1
}

// An echo is a write of a copy, to a tier that no write waits for. Its entry in ops is
// beyond the queue's depth, and it makes no events. A log may write a block again once the
// block is Released, so echoes of the same bytes follow one another.

// echoes are the echoes of one tier, as indexes in ops.
type echoes struct {
	active  []uint32 // given to the tier
	waiting []uint32 // for active ones that they, or one before them, overlap
}

// echo gives tier i a copy of a write that was admitted to it, unless the tier is too far
// behind.
func (q *tieredQueue) echo(i int, src []byte, addr int64) {
	tr := q.t.tiers[i]
	if q.tooFar(i, len(src)) {
		q.absorb(i)
	}
	if q.tooFar(i, len(src)) {
		q.t.fail(tr, fmt.Errorf("%w: %d bytes are pending", ErrBehind, q.counters[i].behind.Load()))
	}
	if tr.out() {
		tr.writes.Add(-1)
		return
	}
	id := q.takeEcho(i, len(src))
	op := &q.ops[id]
	op.addr = addr
	mem.CopyBytesOut(op.buf, src) // the log may still write to other bytes of the page
	q.counters[i].behind.Add(int64(len(src)))
	q.t.unwritten(tr, addr, true)
	e := &q.echoes[i]
	if len(e.waiting) > 0 || q.overlaps(e.active, op) {
		e.waiting = append(e.waiting, id)
		return
	}
	q.startEcho(i, id)
}

// takeEcho returns an entry of ops with a buffer of n bytes for tier i.
func (q *tieredQueue) takeEcho(i, n int) uint32 {
	if len(q.freeEchoes) == 0 {
		q.freeEchoes = append(q.freeEchoes, uint32(len(q.ops)))
		q.ops = append(q.ops, tieredOp{})
		q.copies = append(q.copies, nil)
	}
	id := q.freeEchoes[len(q.freeEchoes)-1]
	q.freeEchoes = q.freeEchoes[:len(q.freeEchoes)-1]
	own := &q.copies[int(id)-q.depth]
	if align := q.t.tiers[i].dev.Alignment(); cap(*own) < n || !aligned(*own, align) {
		*own = AlignedBuffer(n, align)
	}
	op := &q.ops[id]
	op.buf, op.state, op.began = (*own)[:n], opEcho, sinceEpoch()
	q.echoing++
	return id
}

// overlaps reports whether an operation's bytes overlap those of others.
func (q *tieredQueue) overlaps(others []uint32, op *tieredOp) bool {
	return slices.ContainsFunc(others, func(o uint32) bool {
		other := &q.ops[o]
		return op.addr < other.addr+int64(len(other.buf)) && other.addr < op.addr+int64(len(op.buf))
	})
}

// startEcho gives an echo to its tier.
func (q *tieredQueue) startEcho(i int, id uint32) {
	op := &q.ops[id]
	e := &q.echoes[i]
	e.active = append(e.active, id)
	err := q.open(i)
	if err == nil {
		err = q.hand(i, id)
	}
	if err != nil {
		q.wrote(op, i, err)
		q.echoed(i, id)
		return
	}
	op.pending = 1 << i
	q.pending[i]++
	q.dirty |= 1 << i
}

// echoed ends an active echo, and starts those that waited for it. If the tier is out, it
// drops them.
func (q *tieredQueue) echoed(i int, id uint32) {
	e := &q.echoes[i]
	e.active = slices.DeleteFunc(e.active, func(o uint32) bool { return o == id })
	q.freeEcho(i, id)
	for len(e.waiting) > 0 {
		next := e.waiting[0]
		out := q.t.tiers[i].out()
		if !out && q.overlaps(e.active, &q.ops[next]) {
			return
		}
		e.waiting = slices.Delete(e.waiting, 0, 1)
		if out {
			q.t.tiers[i].writes.Add(-1)
			q.freeEcho(i, next)
			continue
		}
		q.startEcho(i, next)
	}
}

func (q *tieredQueue) freeEcho(i int, id uint32) {
	op := &q.ops[id]
	q.counters[i].behind.Add(-int64(len(op.buf)))
	q.t.unwritten(q.t.tiers[i], op.addr, false)
	op.state, op.buf, op.err, op.pending, op.held = opFree, nil, nil, 0, 0
	q.freeEchoes = append(q.freeEchoes, id)
	q.echoing--
}

// absorb polls tier i and keeps the events in ready for the next Poll.
func (q *tieredQueue) absorb(i int) {
	for q.pending[i] > 0 {
		done := q.scratch[:q.queues[i].Poll(q.scratch[:])]
		for _, c := range done {
			if e, ok := q.settled(i, c); ok {
				q.keep(e)
			}
		}
		if len(done) == 0 {
			return
		}
	}
}

// unwritten notes that an echo at addr is pending on a tier, or no longer is. While it is,
// reads of it go to the tiers behind.
func (t *Tiered) unwritten(tr *tier, addr int64, pending bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if pending {
		tr.pendingEchoes = append(tr.pendingEchoes, addr)
	} else if i := slices.Index(tr.pendingEchoes, addr); i >= 0 {
		tr.pendingEchoes = slices.Delete(tr.pendingEchoes, i, i+1)
	}
	low := int64(noAddress)
	for _, addr := range tr.pendingEchoes {
		low = min(low, addr)
	}
	tr.ahead.Store(low)
}
