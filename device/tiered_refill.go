package device

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/clock"
)

const (
	// refillPiece is the number of bytes copied at once: small enough not to delay a read
	// behind it noticeably.
	refillPiece = 64 << 10
	// While nothing can be refilled, or refilling fails, refill tries again after a delay
	// that doubles from firstRefillDelay to lastRefillDelay.
	firstRefillDelay = time.Millisecond
	lastRefillDelay  = time.Second
)

// DefaultRefillRate is the default of TieredOptions.RefillRate, in bytes a second.
const DefaultRefillRate = 64 << 20

// refill fills the holes of one tier from the tiers behind it, on its own goroutine, one
// piece at a time: the newest first, because those are read most and stay longest.
//
// What it reads is what the tier would have been given. A piece is copied only if no write
// to it was pending at some moment after its ticket was taken: a write that ended before
// has reached every tier, and one that begins later invalidates the ticket.
type refill struct {
	t     *Tiered
	tier  *tier
	dev   fillable
	clock clock.Clock

	// The fields below belong to the goroutine.
	source  *tieredQueue // of the tiers behind; not in Tiered.queues, whose reads are counted
	queue   RefillQueue
	pending bool // an abandoned operation is pending on queue
	buf     []byte
	below   int64     // address of the last failure: only holes below it are tried,
	until   time.Time // until then
	delay   time.Duration
	began   time.Time // of the first piece since nothing was missing; zero: none yet
	filled  int64     // bytes since began

	pieces, bytes atomic.Uint64

	cancel context.CancelFunc // nil: not started
	ended  chan struct{}
}

func newRefill(t *Tiered, tr *tier, dev fillable) *refill {
	return &refill{
		t: t, tier: tr, dev: dev, clock: clock.Real(), below: math.MaxInt64, delay: firstRefillDelay, ended: make(chan struct{}),
	}
}

// startRefills starts the goroutine of every Refiller, and of every other tier that lacks
// something.
func (t *Tiered) startRefills() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	for _, tr := range t.tiers {
		if r := tr.refill; r != nil && (tr.refiller != nil || r.dev.Missing() > 0) {
			r.start()
		}
	}
	return nil
}

// start starts the goroutine, once. The caller holds Tiered.mu.
func (r *refill) start() {
	if r.cancel != nil || !r.t.refills || r.t.closed {
		return
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	go r.run(ctx)
}

// stop ends the goroutine, and waits until it has closed its queues, except those on tiers
// that are left, see tiered_leave.go. It is not started again.
func (r *refill) stop() {
	if r.cancel != nil {
		r.cancel()
		<-r.ended
	}
}

func (r *refill) run(ctx context.Context) {
	defer r.close()
	for {
		pause, ready := r.step(ctx)
		due := make(chan struct{})
		timer := r.clock.AfterFunc(pause, func() { close(due) })
		select {
		case <-due:
		case <-ready:
			r.below, r.delay = math.MaxInt64, firstRefillDelay
		case <-ctx.Done():
		}
		if timer.Stop(); ctx.Err() != nil {
			return
		}
	}
}

// forEver is a pause that only a token of HoleReady ends.
const forEver = 365 * 24 * time.Hour

// step copies one piece, if there is one. It returns how long to wait before the next, and a
// channel that ends the wait, or nil.
func (r *refill) step(ctx context.Context) (time.Duration, <-chan struct{}) {
	began := r.clock.Now()
	if began.After(r.until) {
		r.below = math.MaxInt64
	}
	hole := r.next()
	if hole.From == hole.To {
		if r.dev.Missing() == 0 {
			r.logRefilled(began)
			r.delay = firstRefillDelay
			return forEver, r.dev.HoleReady()
		}
		return r.later(), r.dev.HoleReady()
	}
	if err := r.copy(ctx, hole); err != nil {
		r.below, r.until = hole.From, began.Add(lastRefillDelay)
		return r.later(), nil
	}
	r.delay = firstRefillDelay
	n := hole.To - hole.From
	r.pieces.Add(1)
	r.bytes.Add(uint64(n))
	if r.filled += n; r.began.IsZero() {
		r.began = began
	}
	// Copying takes at most half of the time: if a busy tier makes a piece slow, the
	// pause is as long.
	took := r.clock.Now().Sub(began)
	share := time.Duration(float64(n) / float64(r.t.opts.RefillRate) * float64(time.Second))
	return max(share-took, took), nil
}

// logRefilled logs that nothing is missing, if something was copied.
func (r *refill) logRefilled(now time.Time) {
	if r.filled > 0 {
		r.t.opts.Logger.Info("tier was refilled",
			"tier", r.tier.name, "bytes", r.filled, "took", now.Sub(r.began))
	}
	r.began, r.filled = time.Time{}, 0
}

// later returns the next delay.
func (r *refill) later() time.Duration {
	d := r.delay
	r.delay = min(2*d, lastRefillDelay)
	return d
}

// next returns the piece to copy, or none.
func (r *refill) next() Hole {
	if r.tier.out() {
		return Hole{}
	}
	last := r.t.last().dev
	if begin := last.Begin(); r.dev.Begin() < begin {
		if err := r.dev.Truncate(begin); err != nil {
			return Hole{} // no tier holds what lies there; it will be tried again
		}
	}
	hole := r.dev.Hole(min(r.below, r.t.settled()), r.piece())
	if hole.To > r.t.settled() {
		return Hole{} // a write has begun between the two calls
	}
	return hole
}

// copy reads a hole's bytes and fills it.
func (r *refill) copy(ctx context.Context, hole Hole) error {
	if err := r.open(); err != nil {
		return err
	}
	piece := r.buf[:hole.To-hole.From]
	if err := Finish(ctx, r.source, r.source.Read(piece, hole.From, 0)); err != nil {
		return err
	}
	err := Finish(ctx, r.queue, r.queue.Refill(piece, hole, 0))
	r.pending = ctx.Err() != nil && err != nil
	return err
}

// piece is the number of bytes that are copied at once, at least a block.
func (r *refill) piece() int { return max(refillPiece, r.t.Alignment()) }

// open makes the queues that are not open yet.
func (r *refill) open() error {
	if r.source == nil {
		r.source = newTieredQueue(r.t, 1)
		r.buf = AlignedBuffer(r.piece(), r.t.Alignment())
	}
	for i := r.tier.index + 1; i < len(r.t.tiers); i++ {
		if r.t.tiers[i].out() {
			continue
		}
		if err := r.source.open(i); err != nil && i == len(r.t.tiers)-1 {
			return err
		}
	}
	if r.queue != nil {
		return nil
	}
	var err error
	r.queue, err = r.dev.NewRefillQueue(1)
	return err
}

// close closes the queues. It waits for pending operations of the last tier. Those of
// another tier, which may be stuck, are left to end later.
func (r *refill) close() {
	last := len(r.t.tiers) - 1
	var left []func()
	end := func(i int, q Queue, pending bool) {
		tr := r.t.tiers[i]
		do := func() {
			if err := q.Close(); err != nil && !tr.out() {
				r.t.opts.Logger.Warn("closing a queue of a refill failed", "tier", r.tier.name, "from", tr.name, "err", err)
			}
		}
		if !pending || i == last {
			do()
			return
		}
		r.t.leave(tr)
		left = append(left, func() { do(); r.t.left(tr) })
	}
	if r.source != nil {
		for i, q := range r.source.queues {
			if q != nil {
				end(i, q, r.source.pending[i] > 0)
			}
		}
	}
	if r.queue != nil {
		end(r.tier.index, r.queue, r.pending)
	}
	close(r.ended)
	for _, do := range left {
		do()
	}
}

// settled is the address below which no tier has a pending write.
func (t *Tiered) settled() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lowestPending()
}

// lowestPending is the lowest address of a pending write, at most the tail. The caller holds mu.
func (t *Tiered) lowestPending() int64 {
	low := t.tail
	for _, addr := range t.writing {
		low = min(low, addr)
	}
	return low
}

// ended removes a write from the pending ones.
func (t *Tiered) ended(addr int64) {
	if !t.keepsWriting() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.writing, addr); i >= 0 {
		last := len(t.writing) - 1
		t.writing[i] = t.writing[last]
		t.writing = t.writing[:last]
	}
}

// lost reports, given the result of a Refiller's Sync, whether the tier may have lost a
// write that is still pending on the last tier.
func (t *Tiered) lost(tr *tier, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case errors.Is(err, ErrNotHeld):
		tr.doubt = true
	case err != nil:
		return false
	}
	doubt := tr.doubt
	if t.last().writes.Load() == 0 {
		tr.doubt = false
	}
	return doubt
}
