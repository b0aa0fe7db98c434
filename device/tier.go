package device

import (
	"math"
	"sync/atomic"
	"time"
)

// tier is one device of a Tiered and its health.
//
//	in the set ──fail──► out ──restart, at the end of all writes──► in the set
//
// The last tier never leaves: there is nothing behind it.
type tier struct {
	dev      Device
	index    int
	name     string
	refiller Refiller // the device, if it is one, but for the last tier; else nil
	refill   *refill  // but for the last tier

	// floor is the lowest address that the tier may answer for, whatever its
	// Begin says; outFloor while it is out. Everything written so far lies
	// below the floor that a tier comes back with, so a read that began before
	// the tier failed is refused by the floor afterwards as well. A Refiller
	// comes back with 0 and refuses such a read itself. Refilling lowers the floor,
	// over what it has written.
	floor atomic.Int64
	// writes under way on the tier, over all queues. Raised under Tiered.mu,
	// lowered anywhere, after a failure has been reported.
	writes atomic.Int64
	// ahead is the lowest address of the echoes on their way to the tier, noAddress if
	// there is none: from there on others have what the tier has not.
	ahead atomic.Int64
	// counters of the queues that are closed.
	retired tierCounters

	// Guarded by Tiered.mu.
	reason   error         // why the tier is out, or the last tier's last error
	retryAt  time.Time     // not to be started again before
	backoff  time.Duration // until the next retryAt
	failures uint64
	restarts uint64
	starting bool    // it is being started again, in the background
	doubt    bool    // see lost
	onTheWay []int64 // addresses of echoes
	// What was left to goroutines: queues that were closed and have something under way,
	// its start, syncs. See tiered_leave.go.
	leaving    int
	gone       chan struct{} // closed once leaving is 0 again; nil if it never was more
	closeLater bool          // who ends the last of them closes the device
}

// outFloor and noAddress are above every address.
const (
	outFloor  = math.MaxInt64
	noAddress = math.MaxInt64
)

// out says whether the tier has left the set.
func (tr *tier) out() bool { return tr.floor.Load() == outFloor }

// holds says whether the tier answers for addr at this moment.
func (tr *tier) holds(addr int64) bool { return addr >= tr.floor.Load() && addr >= tr.dev.Begin() }

// mayRead says whether n bytes at addr can be asked of the tier.
func (tr *tier) mayRead(n int, addr int64) bool {
	return tr.holds(addr) && addr <= tr.ahead.Load()-int64(n)
}

// fail takes a tier that failed out of the set, and tells of it once. The last
// tier stays; its error is kept, and the caller's to report.
func (t *Tiered) fail(tr *tier, err error) {
	t.mu.Lock()
	tr.failures++
	known := tr.reason != nil
	if !known || tr == t.last() {
		tr.reason = err
	}
	if !known && tr != t.last() {
		tr.floor.Store(outFloor)
		tr.backoff = min(max(2*tr.backoff, t.opts.RetryAfter), 64*t.opts.RetryAfter)
		tr.retryAt = time.Now().Add(tr.backoff)
		t.dirty = true
	}
	t.mu.Unlock()
	if !known {
		t.tell(TierEvent{Tier: tr.index, Name: tr.name, Err: err})
	}
}

// recovered clears the last tier's error after a write that went well.
func (t *Tiered) recovered(tr *tier) {
	t.mu.Lock()
	known := tr.reason != nil
	tr.reason = nil
	t.mu.Unlock()
	if known {
		t.tell(TierEvent{Tier: tr.index, Name: tr.name, Addr: tr.dev.Begin()})
	}
}

// tell logs an event and hands it to the callback. The caller holds no lock.
func (t *Tiered) tell(e TierEvent) {
	if e.Err != nil {
		t.opts.Logger.Warn("storage tier failed", "tier", e.Name, "number", e.Tier, "err", e.Err)
	} else {
		t.opts.Logger.Info("storage tier is back", "tier", e.Name, "number", e.Tier, "from", e.Addr)
	}
	if t.opts.OnEvent != nil {
		t.opts.OnEvent(e)
	}
}

// admit accounts for a write of n bytes at addr and returns the set of tiers,
// as bits, that it must go to. The tiers that are due are started first: under
// the lock, so that every write which the tier has missed ends at or below the
// address where it starts, and every later one goes to it. A write is a page;
// a lock for each costs nothing.
func (t *Tiered) admit(n int, addr int64) uint32 {
	var back []TierEvent
	t.mu.Lock()
	var set uint32
	for i, tr := range t.tiers {
		if tr.out() {
			if tr.starting || tr.writes.Load() > 0 || time.Now().Before(tr.retryAt) || !t.restart(tr) {
				continue
			}
			back = append(back, TierEvent{Tier: i, Name: tr.name, Addr: max(tr.floor.Load(), tr.dev.Begin())})
		}
		tr.writes.Add(1)
		set |= 1 << i
	}
	t.tail = max(t.tail, addr+int64(n))
	if t.keepsWriting() {
		t.writing = append(t.writing, addr)
	}
	t.mu.Unlock()
	for _, e := range back {
		t.tell(e)
	}
	return set
}

// restart brings a tier back at the end of all writes, a Refiller with a hole below, and
// says whether it did. The caller holds mu, and nothing is being written to the tier.
func (t *Tiered) restart(tr *tier) bool {
	floor := tr.alignUp(t.tail)
	if !t.startAgain(tr, floor) {
		return false
	}
	if tr.refiller != nil {
		floor = 0
	}
	tr.floor.Store(floor)
	tr.reason = nil
	tr.restarts++
	t.dirty = true
	if b, ok := tr.refill.dev.(*belowFloor); ok && b.Missing() > 0 {
		tr.refill.start()
		b.poke()
	}
	return true
}

// startPatience is how long writes wait for a tier that is started again.
const startPatience = 100 * time.Millisecond

// startAgain starts a tier at an address, and says whether it did. One that takes long, as
// one whose server does not answer, goes on in the background: by then the log has another
// end, so the next write starts the tier once more, which should not take long then. The
// caller holds mu.
func (t *Tiered) startAgain(tr *tier, tail int64) bool {
	result := make(chan error, 1)
	go func() { result <- tr.dev.Start(tail) }()
	if came, err := within(startPatience, result); came {
		t.startEnded(tr, err)
		return err == nil
	}
	tr.starting = true
	tr.leave()
	go func() {
		err := <-result
		t.mu.Lock()
		tr.starting = false
		t.startEnded(tr, err)
		t.mu.Unlock()
		t.left(tr)
	}()
	return false
}

// startEnded says when a tier may be started next. The caller holds mu.
func (t *Tiered) startEnded(tr *tier, err error) {
	if err == nil {
		tr.retryAt = time.Time{}
		return
	}
	tr.failures++
	tr.backoff = min(2*tr.backoff, 64*t.opts.RetryAfter)
	tr.retryAt = time.Now().Add(tr.backoff)
}

// alignUp rounds an address up to where a write to the tier can begin.
func (tr *tier) alignUp(addr int64) int64 {
	align := int64(tr.dev.Alignment())
	return (addr + align - 1) &^ (align - 1)
}

// keepsWriting says whether somebody wants to know which writes are under way.
func (t *Tiered) keepsWriting() bool { return t.refills || t.commit < len(t.tiers)-1 }
