package device

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redykv/redykv/internal/mem"
)

// BacklogPolicy says what happens when a tier beyond the commit point is as far behind
// as it may be.
type BacklogPolicy uint8

const (
	// BacklogWait lets writes wait until the tier has caught up. Its writes are part of
	// those it holds up: their buffers are Released when it has them.
	BacklogWait BacklogPolicy = iota
	// BacklogDrop takes the tier out of the set, as one that failed: it comes back when
	// it is through with what it was given, and what it lacks is copied back in the
	// background. Nobody waits for it: it is given copies. The last tier, which must
	// have everything, waits all the same.
	BacklogDrop
)

// DefaultBacklog is TieredOptions.Backlog by default, in bytes.
const DefaultBacklog = 64 << 20

// ErrBehind says that a tier was too slow: it was further behind than
// TieredOptions.Backlog.
var ErrBehind = errors.New("device: tier is too far behind")

// tooFar says whether tier i would be too far behind with n bytes more.
func (q *tieredQueue) tooFar(i, n int) bool {
	limit := q.t.opts.Backlog
	behind := q.counters[i].behind.Load()
	return limit > 0 && behind > 0 && behind+int64(n) > limit
}

// mustWait says whether a write of n bytes has to wait for a tier beyond the commit
// point.
func (q *tieredQueue) mustWait(n int) bool {
	for i := q.t.commit + 1; i < len(q.queues); i++ {
		if !q.t.detached(i) && !q.t.tiers[i].out() && q.tooFar(i, n) {
			return true
		}
	}
	return false
}

// detached says whether nobody waits for tier i's writes: it gets echoes.
func (t *Tiered) detached(i int) bool {
	return t.opts.BacklogPolicy == BacklogDrop && i > t.commit && i < len(t.tiers)-1
}

// An echo is the write of a copy, to a tier that nobody waits for. It has a slot of its
// own, beyond those of the queue's depth, and makes no events. A log may write a block
// again once that is Released, so echoes on the same bytes follow one another.

// echoes are those of one tier.
type echoes struct {
	active  []uint32 // slots; on their way to the tier
	waiting []uint32 // for active ones that they, or one before them, overlap
}

// echo gives tier i a copy of a write that it was admitted to, unless it is too far
// behind.
func (q *tieredQueue) echo(i int, src []byte, addr int64) {
	tr := q.t.tiers[i]
	if q.tooFar(i, len(src)) {
		q.absorb(i)
	}
	if q.tooFar(i, len(src)) {
		q.t.fail(tr, fmt.Errorf("%w: %d bytes are on their way", ErrBehind, q.counters[i].behind.Load()))
	}
	if tr.out() {
		tr.writes.Add(-1)
		return
	}
	s := q.takeEcho(i, len(src))
	sl := &q.slots[s]
	sl.addr = addr
	mem.CopyBytesOut(sl.buf, src) // a refill of the log may go on in the page
	q.counters[i].behind.Add(int64(len(src)))
	q.t.unwritten(tr, addr, true)
	e := &q.echoes[i]
	if len(e.waiting) > 0 || q.overlaps(e.active, sl) {
		e.waiting = append(e.waiting, s)
		return
	}
	q.startEcho(i, s)
}

// takeEcho returns a slot with a buffer of n bytes for tier i.
func (q *tieredQueue) takeEcho(i, n int) uint32 {
	if len(q.freeEchoes) == 0 {
		q.freeEchoes = append(q.freeEchoes, uint32(len(q.slots)))
		q.slots = append(q.slots, tieredSlot{})
		q.copies = append(q.copies, nil)
	}
	s := q.freeEchoes[len(q.freeEchoes)-1]
	q.freeEchoes = q.freeEchoes[:len(q.freeEchoes)-1]
	own := &q.copies[int(s)-q.depth]
	if align := q.t.tiers[i].dev.Alignment(); cap(*own) < n || !aligned(*own, align) {
		*own = AlignedBuffer(n, align)
	}
	sl := &q.slots[s]
	sl.buf, sl.state, sl.began = (*own)[:n], slotEcho, sinceEpoch()
	q.echoing++
	return s
}

// overlaps says whether a slot's bytes are among those of others.
func (q *tieredQueue) overlaps(others []uint32, sl *tieredSlot) bool {
	return slices.ContainsFunc(others, func(o uint32) bool {
		other := &q.slots[o]
		return sl.addr < other.addr+int64(len(other.buf)) && other.addr < sl.addr+int64(len(sl.buf))
	})
}

// startEcho hands an echo to its tier.
func (q *tieredQueue) startEcho(i int, s uint32) {
	sl := &q.slots[s]
	e := &q.echoes[i]
	e.active = append(e.active, s)
	err := q.open(i)
	if err == nil {
		err = q.hand(i, s)
	}
	if err != nil {
		q.wrote(sl, i, err)
		q.echoed(i, s)
		return
	}
	sl.pending = 1 << i
	q.under[i]++
	q.dirty |= 1 << i
}

// echoed ends an active echo, and starts those that waited for it. A tier that is out
// gets no more.
func (q *tieredQueue) echoed(i int, s uint32) {
	e := &q.echoes[i]
	e.active = slices.DeleteFunc(e.active, func(o uint32) bool { return o == s })
	q.freeEcho(i, s)
	for len(e.waiting) > 0 {
		next := e.waiting[0]
		out := q.t.tiers[i].out()
		if !out && q.overlaps(e.active, &q.slots[next]) {
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

func (q *tieredQueue) freeEcho(i int, s uint32) {
	sl := &q.slots[s]
	q.counters[i].behind.Add(-int64(len(sl.buf)))
	q.t.unwritten(q.t.tiers[i], sl.addr, false)
	sl.state, sl.buf, sl.err, sl.pending, sl.held = slotFree, nil, nil, 0, 0
	q.freeEchoes = append(q.freeEchoes, s)
	q.echoing--
}

// absorb takes what tier i has completed. The events wait in ready for the next Poll.
func (q *tieredQueue) absorb(i int) {
	for q.under[i] > 0 {
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

// unwritten notes that a write at addr is on its way to a tier, or is no more, while
// it may be read from others.
func (t *Tiered) unwritten(tr *tier, addr int64, onItsWay bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if onItsWay {
		tr.onTheWay = append(tr.onTheWay, addr)
	} else if i := slices.Index(tr.onTheWay, addr); i >= 0 {
		tr.onTheWay = slices.Delete(tr.onTheWay, i, i+1)
	}
	low := int64(noAddress)
	for _, addr := range tr.onTheWay {
		low = min(low, addr)
	}
	tr.ahead.Store(low)
}
