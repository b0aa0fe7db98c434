package fabric

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/clock"
)

// An owner that waits for the next completion suspends its thread and spins only for the
// last microseconds. Measured: nanosleep ends 2 to 5 us late without the thread's timer
// slack of 50 us. time.Sleep and other waits in the network poller take 1.05 ms for less
// than 1 ms, and end 0.07 to 1 ms late beyond.
const (
	// napBelow is the longest wait for which the thread naps. A nap blocks the thread
	// and is not ended by Wake or the transport, so naps are short.
	napBelow = int64(2500 * time.Microsecond)
	napLate  = int64(3 * time.Microsecond)
	longNap  = int64(250 * time.Microsecond)
	// A longer wait parks with the transport, for this much less.
	parkLate = int64(1200 * time.Microsecond)
)

// heldRecvs is the most immediates of the peer that are held; more stay in the transport.
const heldRecvs = 256

// held is an operation or an immediate, and when it is due.
type held struct {
	done  Completion
	due   int64
	bytes int
	write bool
}

// modelledPair holds the completions of another queue pair. All fields but woken belong to
// its owner.
type modelledPair struct {
	QueuePair
	network *modelled
	depth   uint64
	dialled bool // an immediate answers a request, and is held for a round trip

	ops    ring[held] // this side's operations, in the order of enqueueing
	priced uint64     // ops below have their due time
	ended  uint64     // ops below have been completed by the transport
	recvs  ring[held] // the peer's immediates
	got    [64]Completion

	launch int64   // when the adapter starts the last priced operation
	reads  []int64 // due times of the last priced reads, as many as may be outstanding; empty: any number
	oldest int     // the place of the oldest of them: the next read waits until it is due

	woken atomic.Bool
}

func newModelledPair(n *modelled, q QueuePair, depth int, dialled bool) *modelledPair {
	return &modelledPair{
		QueuePair: q, network: n, depth: uint64(depth), dialled: dialled,
		ops: newRing[held](depth), recvs: newRing[held](heldRecvs),
		reads: make([]int64, n.model().Reads),
	}
}

func (q *modelledPair) Read(dst []byte, r Remote, offset int64, tag uint64) error {
	if q.full() {
		return ErrQueueFull
	}
	return q.enqueued(q.QueuePair.Read(dst, r, offset, tag), len(dst), false)
}

func (q *modelledPair) Write(src []byte, r Remote, offset int64, tag uint64) error {
	if q.full() {
		return ErrQueueFull
	}
	return q.enqueued(q.QueuePair.Write(src, r, offset, tag), len(src), true)
}

func (q *modelledPair) WriteImm(src []byte, r Remote, offset int64, imm uint32, tag uint64) error {
	if q.full() {
		return ErrQueueFull
	}
	return q.enqueued(q.QueuePair.WriteImm(src, r, offset, imm, tag), len(src), true)
}

// full counts held operations too: for the owner they are pending.
func (q *modelledPair) full() bool {
	return q.ops.len() == q.depth
}

func (q *modelledPair) enqueued(err error, n int, write bool) error {
	if err == nil {
		q.ops.push(held{bytes: n, write: write})
	}
	return err
}

// Submit sets the batch's due times, with one reading of the clock.
func (q *modelledPair) Submit() error {
	if q.priced != q.ops.tail {
		q.price()
	}
	return q.QueuePair.Submit()
}

func (q *modelledPair) price() {
	p, m := q.network, q.network.model()
	var rx, tx int64
	for i := q.priced; i != q.ops.tail; i++ {
		if h := q.ops.at(i); h.write {
			tx += m.wire(h.bytes)
		} else {
			rx += m.wire(h.bytes)
		}
	}
	now, first := p.now(), q.priced
	card := p.card.reserve(now, m.handling(q.ops.tail-first))
	rx, tx = p.rx.reserve(now, rx), p.tx.reserve(now, tx)
	for ; q.priced != q.ops.tail; q.priced++ {
		h := q.ops.at(q.priced)
		wire, trip := m.wire(h.bytes), m.roundTrip(h.write, h.bytes)
		q.launch = max(q.launch, card+m.handling(q.priced-first))
		if h.write {
			tx += wire
			h.due = max(tx, q.launch+wire) + trip
			continue
		}
		rx += wire
		if len(q.reads) == 0 {
			h.due = max(rx, q.launch+wire) + trip
			continue
		}
		oldest := &q.reads[q.oldest]
		q.launch = max(q.launch, *oldest)
		h.due = max(rx, q.launch+wire) + trip
		*oldest = h.due
		if q.oldest++; q.oldest == len(q.reads) {
			q.oldest = 0
		}
	}
}

// gather takes the transport's completions.
func (q *modelledPair) gather() {
	var now int64
	for {
		room := heldRecvs - q.recvs.len()
		got := q.got[:q.QueuePair.Poll(q.got[:min(uint64(len(q.got)), room)])]
		for _, c := range got {
			if c.Op != OpRecv {
				q.ops.at(q.ended).done = c
				q.ended++
				continue
			}
			if now == 0 {
				now = q.network.now()
			}
			p, m := q.network, q.network.model()
			wire, answer := m.wire(c.N), int64(0)
			if q.dialled {
				answer = int64(m.RTT)
			}
			start := max(p.card.reserve(now, m.handling(1)), p.rx.reserve(now, wire))
			q.recvs.push(held{done: c, due: start + wire + answer})
		}
		if len(got) < len(q.got) {
			return
		}
	}
}

// due returns when the next completion is due.
func (q *modelledPair) due() (at int64, some bool) {
	if q.ops.head != q.ended {
		at, some = q.ops.at(q.ops.head).due, true
	}
	if q.recvs.len() > 0 {
		if d := q.recvs.at(q.recvs.head).due; !some || d < at {
			at, some = d, true
		}
	}
	return at, some
}

func (q *modelledPair) Poll(done []Completion) int {
	q.gather()
	if _, some := q.due(); !some {
		return 0
	}
	now := q.network.now()
	n := deliver(&q.ops, done, q.ended, now)
	return n + deliver(&q.recvs, done[n:], q.recvs.tail, now)
}

func deliver(h *ring[held], done []Completion, end uint64, now int64) (n int) {
	for n < len(done) && h.head != end && h.at(h.head).due <= now {
		done[n] = h.at(h.head).done
		h.head++
		n++
	}
	return n
}

func (q *modelledPair) Wait(ctx context.Context) error {
	for {
		q.gather()
		if q.woken.Load() && q.woken.Swap(false) {
			return nil
		}
		at, some := q.due()
		if !some {
			return q.await(ctx)
		}
		left := at - q.network.now()
		if left <= 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if left <= napLate {
			continue // a nap would end later and cost as much
		}
		if left <= napBelow {
			nap(min(left-napLate, longNap))
			continue
		}
		if err := q.sleep(ctx, time.Duration(left-parkLate)); err != nil {
			return err
		}
	}
}

// await waits for the transport; Wait then waits until its completion is due. If the transport
// has no completion, the wait was woken, and await returns.
func (q *modelledPair) await(ctx context.Context) error {
	if err := q.QueuePair.Wait(ctx); err != nil {
		return err
	}
	q.gather()
	if _, some := q.due(); !some {
		q.woken.Store(false)
		return nil
	}
	return q.Wait(ctx)
}

// sleep parks until d has passed, ctx ends, or the transport has a completion. It allocates,
// which does not matter for a wait this long.
func (q *modelledPair) sleep(ctx context.Context, d time.Duration) error {
	nap, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err := q.QueuePair.Wait(nap)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil
	}
	if err != nil && q.Err() != nil {
		// The connection has ended; held completions are still due later.
		if !clock.Sleep(ctx, d) {
			return context.Cause(ctx)
		}
		return nil
	}
	return err
}

// Wake is safe for concurrent use.
func (q *modelledPair) Wake() {
	q.woken.Store(true)
	q.QueuePair.Wake()
}
