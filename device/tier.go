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
	starting bool      // it is being started again, in the background
	passed   time.Time // when writes had passed such a start: reads let them have it started first
	doubt    bool      // see lost
	onTheWay []int64   // addresses of echoes
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
			if !tr.due() || !t.restart(tr, startPatience) {
				continue
			}
			back = append(back, tr.isBack())
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

// due says whether a tier that is out may be started again: nothing is being written to it.
// The caller holds Tiered.mu.
func (tr *tier) due() bool {
	return !tr.starting && tr.writes.Load() == 0 && !time.Now().Before(tr.retryAt)
}

// isBack is the event of a tier that is back.
func (tr *tier) isBack() TierEvent {
	return TierEvent{Tier: tr.index, Name: tr.name, Addr: max(tr.floor.Load(), tr.dev.Begin())}
}

// revive has the tiers that are due started, in the background: a log that is only read
// gets them back as well.
func (t *Tiered) revive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.preparing {
		return
	}
	for _, tr := range t.tiers {
		if tr.out() && tr.due() && time.Since(tr.passed) > t.opts.RetryAfter {
			t.restart(tr, 0)
		}
	}
}

// startPatience is how long writes wait for a tier that is started again.
const startPatience = 100 * time.Millisecond

// restart starts a tier at the end of all writes, and says whether it is back. One that
// takes longer than patience goes on in the background. If the log has another end by
// then, it is started once more, which should not take long then. The caller holds mu, and
// nothing is being written to the tier.
func (t *Tiered) restart(tr *tier, patience time.Duration) bool {
	floor := tr.alignUp(t.tail)
	result := make(chan error, 1)
	go func() { result <- tr.dev.Start(floor) }()
	if patience > 0 {
		if came, err := within(patience, result); came {
			return t.restarted(tr, floor, err)
		}
	}
	tr.starting = true
	tr.leave()
	go func() {
		err := <-result
		t.mu.Lock()
		tr.starting = false
		back := t.restarted(tr, floor, err)
		event := tr.isBack()
		t.mu.Unlock()
		if back {
			t.tell(event)
		}
		t.left(tr)
	}()
	return false
}

// restarted brings a tier back that was started at floor, a Refiller with a hole below, and
// says whether it did: not if that failed, or writes have passed it. The caller holds mu.
func (t *Tiered) restarted(tr *tier, floor int64, err error) bool {
	if err != nil {
		tr.failures++
		tr.backoff = min(2*tr.backoff, 64*t.opts.RetryAfter)
		tr.retryAt = time.Now().Add(tr.backoff)
		return false
	}
	tr.retryAt = time.Time{}
	if floor != tr.alignUp(t.tail) {
		tr.passed = time.Now()
		return false
	}
	if t.closed {
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

// alignUp rounds an address up to where a write to the tier can begin.
func (tr *tier) alignUp(addr int64) int64 {
	align := int64(tr.dev.Alignment())
	return (addr + align - 1) &^ (align - 1)
}

// keepsWriting says whether somebody wants to know which writes are under way.
func (t *Tiered) keepsWriting() bool { return t.refills || t.commit < len(t.tiers)-1 }
