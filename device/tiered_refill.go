package device

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/clock"
)

const (
	// A piece that is copied beside reads is small, so that it does not delay a read behind it
	// noticeably. On idle tiers large pieces cost less processor time.
	refillPiece      = 64 << 10
	largeRefillPiece = 256 << 10
	// While nothing can be refilled, refill tries again after a delay that doubles from
	// firstRefillDelay to lastRefillDelay, as does the delay after which a piece that failed
	// is tried again.
	firstRefillDelay = time.Millisecond
	lastRefillDelay  = time.Second
)

// refill fills the holes of one tier from the tiers behind it, on its own goroutine, several
// pieces at a time: the newest first, because those are read most and stay longest. It works and
// rests in turns, see refillPace.
//
// What it reads is what the tier would have been given. A piece is copied only if no write
// to it was pending at some moment after its ticket was taken: a write that ended before
// has reached every tier, and one that begins later invalidates the ticket.
type refill struct {
	t     *Tiered
	tier  *tier
	dev   fillable
	clock clock.Clock
	small int // size of a piece beside reads
	large int // and on idle tiers

	// The fields below belong to the goroutine.
	copier *refillCopier // nil: not needed yet
	pace   refillPace
	seen   reading       // where pace's account ends
	crowds int           // turns, up to the last one, in which goroutines waited for a processor
	below  int64         // address of a failure: only holes below it are tried,
	until  time.Time     // until then
	retry  time.Duration // what until is after the last failure
	delay  time.Duration // of the next attempt if nothing can be copied
	began  time.Time     // of the first piece since nothing was missing; zero: none yet
	filled int64         // bytes since began

	pieces, bytes atomic.Uint64

	cancel context.CancelFunc // nil: not started
	ended  chan struct{}
}

// reading is the number of reads that the tiers have answered by a time.
type reading struct {
	at    time.Time
	reads uint64
}

func newRefill(t *Tiered, tr *tier, dev fillable) *refill {
	return &refill{
		t: t, tier: tr, dev: dev, clock: clock.Real(), small: refillPiece, large: largeRefillPiece, pace: newRefillPace(),
		below: math.MaxInt64, retry: firstRefillDelay, delay: firstRefillDelay, ended: make(chan struct{}),
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
	for ctx.Err() == nil {
		pause, ready := r.step(ctx)
		if pause == 0 {
			continue
		}
		due := make(chan struct{})
		timer := r.clock.AfterFunc(pause, func() { close(due) })
		select {
		case <-due:
		case <-ready:
			r.below, r.retry, r.delay = math.MaxInt64, firstRefillDelay, firstRefillDelay
		case <-ctx.Done():
		}
		timer.Stop()
		_, took, reads := r.account()
		r.pace.rested(took, reads)
	}
}

// forEver is a pause that only a token of HoleReady ends.
const forEver = 365 * 24 * time.Hour

// step does a turn of work. It returns how long to wait before the next, and a channel that ends
// the wait, or nil.
func (r *refill) step(ctx context.Context) (time.Duration, <-chan struct{}) {
	began, _, _ := r.account()
	if began.After(r.until) {
		r.below = math.MaxInt64
	}
	if r.copier == nil {
		r.copier = newRefillCopier(r.t)
	}
	w, err := r.work(ctx, began, r.pace.work())
	if err == nil && w.started == 0 && w.copied == 0 && w.failed == noAddress && r.copier.inFlight() == 0 {
		return r.nothing(began)
	}
	if r.crowds++; !w.crowded {
		r.crowds = 0
	}
	rest := r.settle(&w, began)
	if err == nil && (rest > 0 || r.t.opts.RefillRate > 0) && r.copier.inFlight() > 0 {
		err = r.drain(ctx, &w)
		rest = r.settle(&w, began)
	}
	if w.copied > 0 {
		r.delay = firstRefillDelay
	}
	if err != nil || w.copied == 0 && r.copier.inFlight() == 0 {
		return r.later(), nil
	}
	return rest, nil
}

// turn is a turn of work.
type turn struct {
	outcome
	started int64 // bytes
	crowded bool  // goroutines waited for a processor
}

// settle accounts for a turn that has begun at a time, and returns the rest after it.
func (r *refill) settle(w *turn, began time.Time) time.Duration {
	now, took, reads := r.account()
	r.pace.worked(took, reads, r.crowds >= crowdedTurns || r.t.isWritten())
	rest := r.pace.rest(now.Sub(began))
	if rate := r.t.opts.RefillRate; rate > 0 {
		share := time.Duration(float64(w.copied) / float64(rate) * float64(time.Second))
		rest = max(rest, share-now.Sub(began))
	}
	return rest
}

// account returns the present time, the time since the last call, and the reads that tiers
// answered meanwhile.
func (r *refill) account() (now time.Time, took time.Duration, reads uint64) {
	last := r.seen
	r.seen = reading{r.clock.Now(), r.t.answered()}
	if last.at.IsZero() {
		return r.seen.at, 0, 0
	}
	return r.seen.at, r.seen.at.Sub(last.at), r.seen.reads - last.reads
}

const (
	// crowded is the time to come back from runtime.Gosched that shows that other goroutines
	// need the processors. The workers of a tier need less for a piece.
	crowded = 500 * time.Microsecond
	// crowdedTurns is the number of such turns, one after the other, that a refill yields to.
	// In a single one the kernel may have taken the processor.
	crowdedTurns = 3
)

// work copies pieces for some time.
func (r *refill) work(ctx context.Context, began time.Time, lasts time.Duration) (w turn, err error) {
	w.failed = noAddress
	size, limit := r.pieceSize()
	for now := began; now.Sub(began) < lasts && ctx.Err() == nil; {
		for r.copier.inFlight() < r.pace.depth && w.started < limit {
			hole := r.next(size)
			if hole.From == hole.To {
				break
			}
			if err := r.copy(hole, size, now); err != nil {
				return w, err
			}
			w.started += hole.To - hole.From
		}
		if r.copier.inFlight() == 0 {
			break
		}
		if err := r.advance(ctx, &w, now); err != nil {
			return w, err
		}
		// Whoever is runnable runs before the next pieces.
		now = r.clock.Now()
		runtime.Gosched()
		from := now
		now = r.clock.Now()
		w.crowded = w.crowded || now.Sub(from) >= crowded
	}
	return w, nil
}

// drain waits for the pieces in flight.
func (r *refill) drain(ctx context.Context, w *turn) error {
	for r.copier.inFlight() > 0 {
		if err := r.advance(ctx, w, r.clock.Now()); err != nil {
			return err
		}
	}
	return nil
}

// copy begins to copy a hole.
func (r *refill) copy(hole Hole, size int, now time.Time) error {
	err := r.copier.open(r)
	if err == nil {
		err = r.copier.start(hole, size, r.t.Alignment())
	}
	if err != nil {
		r.failed(hole.From, now)
	} else if r.began.IsZero() {
		r.began = now
	}
	return err
}

// advance takes the pieces in flight further.
func (r *refill) advance(ctx context.Context, w *turn, now time.Time) error {
	o, err := r.copier.advance(ctx)
	r.pieces.Add(uint64(o.pieces))
	r.bytes.Add(uint64(o.copied))
	r.filled += o.copied
	w.copied += o.copied
	if o.failed != noAddress {
		w.failed = min(w.failed, o.failed)
		r.failed(o.failed, now)
	}
	return err
}

// failed notes that a piece could not be copied.
func (r *refill) failed(at int64, now time.Time) {
	if now.After(r.until) {
		r.retry = min(2*r.retry, lastRefillDelay)
	}
	r.below, r.until = min(r.below, at), now.Add(r.retry)
}

// nothing returns how to wait for holes when there was none.
func (r *refill) nothing(now time.Time) (time.Duration, <-chan struct{}) {
	if r.dev.Missing() > 0 {
		return r.later(), r.dev.HoleReady()
	}
	if r.filled > 0 {
		r.t.opts.Logger.Info("tier was refilled", "tier", r.tier.name, "bytes", r.filled, "took", now.Sub(r.began))
	}
	r.began, r.filled = time.Time{}, 0
	r.retry, r.delay = firstRefillDelay, firstRefillDelay
	r.copier.release()
	return forEver, r.dev.HoleReady()
}

// later returns the next delay.
func (r *refill) later() time.Duration {
	d := r.delay
	r.delay = min(2*d, lastRefillDelay)
	return d
}

// next returns a piece to copy, of at most size bytes, or none.
func (r *refill) next(size int) Hole {
	if r.tier.out() {
		return Hole{}
	}
	last := r.t.last().dev
	if begin := last.Begin(); r.dev.Begin() < begin {
		if err := r.dev.Truncate(begin); err != nil {
			return Hole{} // no tier holds what lies there; it will be tried again
		}
	}
	limit := min(r.below, r.t.settled())
	hole := r.dev.Hole(limit, size)
	if low, overlaps := r.copier.lowest(hole); overlaps {
		if hole = r.dev.Hole(min(limit, low), size); hole.To > low {
			return Hole{} // only the part above can be filled
		}
	}
	if hole.To > r.t.settled() {
		return Hole{} // a write has begun between the two calls
	}
	return hole
}

// pieceSize returns the number of bytes that are copied at once, at least a block, and the bytes
// that may be started in one turn.
func (r *refill) pieceSize() (size int, limit int64) {
	size, limit = r.large, math.MaxInt64
	if rate := r.t.opts.RefillRate; rate > 0 {
		limit = max(rate/int64(time.Second/rateSlice), 1)
	}
	if r.pace.share < 1 || limit < int64(r.large) {
		size = r.small
	}
	return max(size, r.t.Alignment()), limit
}

// rateSlice is the time of which a turn may use up TieredOptions.RefillRate.
const rateSlice = 10 * time.Millisecond

// close closes the queues, see refillCopier.close.
func (r *refill) close() {
	var left []func()
	if r.copier != nil {
		left = r.copier.close(r.t, r.tier)
	}
	close(r.ended)
	for _, do := range left {
		do()
	}
}

// answered returns the number of reads that the tiers have answered, in all queues.
func (t *Tiered) answered() (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, tr := range t.tiers {
		n += tr.retired.hits.Load()
		for q := range t.queues {
			n += q.counters[i].hits.Load()
		}
	}
	return n
}
