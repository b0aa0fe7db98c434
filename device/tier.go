package device

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/device/internal/progress"
)

// tier is one device of a Tiered and its health.
//
//	in the set ──fail──► out ──restart, in the background──► in the set
//
// The last tier never leaves the set.
type tier struct {
	dev      Device
	index    int
	name     string
	refiller Refiller // the device, if it is one and not the last tier; else nil
	refill   *refill  // nil of the last tier

	// floor is the lowest address that the tier answers since it was restarted, even if
	// its Begin is lower; outFloor while it is out. Everything written before the restart
	// lies below the new floor, so the floor also refuses a read that began before the
	// tier failed. A Refiller restarts with 0 and refuses such a read itself. Refilling
	// lowers the floor.
	floor atomic.Int64
	// writes is the number of pending writes of all queues. It is raised under Tiered.mu,
	// and lowered anywhere, after a failure has been reported, and noted if it is the last tier's.
	writes atomic.Int64
	// ahead is the lowest address of the pending echoes, noAddress if there is none: from
	// there on the tier does not have what others have.
	ahead atomic.Int64
	// retired are the counters of the queues that are closed.
	retired tierCounters

	// Guarded by Tiered.mu.
	reason   error         // why the tier is out, or the last tier's last error
	retryAt  time.Time     // earliest time of the next restart
	backoff  time.Duration // until the next retryAt
	failures uint64
	restarts uint64
	rewrites uint64 // the writes of the log that began below the floor
	starting bool   // it is being restarted in the background
	doubtful int64  // the end of the writes that it may have lost, see lost; 0: there are none

	pendingEchoes []int64 // their addresses
	// leaving counts what was left to goroutines: closed queues that still have operations
	// pending, a restart, syncs. See tiered_leave.go.
	leaving    int
	gone       chan struct{} // closed once leaving is 0 again; nil if it never was more
	closeLater bool          // the last of them closes the device
}

// outFloor and noAddress are above every address.
const (
	outFloor  = math.MaxInt64
	noAddress = math.MaxInt64
)

// out reports whether the tier has left the set.
func (tr *tier) out() bool { return tr.floor.Load() == outFloor }

// holds reports whether the tier answers for addr now.
func (tr *tier) holds(addr int64) bool { return addr >= tr.floor.Load() && addr >= tr.dev.Begin() }

// mayRead reports whether n bytes at addr can be read from the tier.
func (tr *tier) mayRead(n int, addr int64) bool {
	return tr.holds(addr) && addr <= tr.ahead.Load()-int64(n)
}

// fail takes a tier that failed out of the set and reports it once. The last tier stays;
// its error is kept, and the caller returns it.
func (t *Tiered) fail(tr *tier, err error) {
	t.telling.Lock()
	defer t.telling.Unlock()
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
		t.notify(TierEvent{Tier: tr.index, Name: tr.name, Err: err})
	}
}

// recovered clears the last tier's error after a successful write.
func (t *Tiered) recovered(tr *tier) {
	t.mu.Lock()
	known := tr.reason != nil
	t.mu.Unlock()
	if !known {
		return
	}
	t.telling.Lock()
	defer t.telling.Unlock()
	t.mu.Lock()
	known = tr.reason != nil
	tr.reason = nil
	t.mu.Unlock()
	if known {
		t.notify(TierEvent{Tier: tr.index, Name: tr.name, Addr: tr.dev.Begin()})
	}
}

// notify logs an event and calls OnEvent. The caller holds telling alone, since before the change.
func (t *Tiered) notify(e TierEvent) {
	if e.Err != nil {
		t.opts.Logger.Warn("storage tier failed", "tier", e.Name, "number", e.Tier, "err", e.Err)
	} else {
		t.opts.Logger.Info("storage tier is back", "tier", e.Name, "number", e.Tier, "from", e.Addr)
	}
	if t.opts.OnEvent != nil {
		t.opts.OnEvent(e)
	}
}

// admit accounts for a write of n bytes at addr and returns the set of tiers, as bits, to
// which it goes, and those of them that will answer for all of it. The others do not until they were
// refilled, which is after the write. Tiers that are due are restarted in the background. A write is a
// page, so a lock for each costs nothing.
func (t *Tiered) admit(n int, addr int64) (set, answering uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tail = max(t.tail, addr+int64(n))
	if t.keepsWrites() {
		t.writes.Begin(progress.Span{From: addr, To: addr + int64(n)})
	}
	for i, tr := range t.tiers {
		if tr.out() {
			t.restart(tr)
			continue
		}
		tr.writes.Add(1)
		set |= 1 << i
		if addr < tr.floor.Load() {
			tr.rewrites++
		} else {
			answering |= 1 << i
		}
	}
	return set, answering
}

// ticket is a number that is another one once the tier was restarted, or a write of the log has begun
// below its floor. The caller holds mu.
func (tr *tier) ticket() uint64 { return tr.restarts + tr.rewrites }

// isBack returns the event of a tier that is back.
func (tr *tier) isBack() TierEvent {
	return TierEvent{Tier: tr.index, Name: tr.name, Addr: max(tr.floor.Load(), tr.dev.Begin())}
}

// revive restarts the tiers that are due, for a log that is only read.
func (t *Tiered) revive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.preparing {
		return
	}
	for _, tr := range t.tiers {
		if tr.out() {
			t.restart(tr)
		}
	}
}

// restart starts a tier that is out in the background, unless it has a pending write, or its
// time has not come. The caller holds mu.
func (t *Tiered) restart(tr *tier) {
	if tr.starting || tr.writes.Load() > 0 || time.Now().Before(tr.retryAt) {
		return
	}
	at := tr.alignUp(t.tail)
	tr.starting = true
	tr.leave()
	go func() {
		err := tr.dev.Start(at)
		if err == nil {
			err = tr.dev.Truncate(t.last().dev.Begin()) // which it may have missed
		}
		t.telling.Lock()
		t.mu.Lock()
		tr.starting = false
		back := t.restarted(tr, at, err)
		event := tr.isBack()
		t.mu.Unlock()
		if back {
			t.notify(event)
		}
		t.telling.Unlock()
		t.left(tr)
	}()
}

// restarted brings a tier back that was started at an address, and reports whether it is back.
// Every write that the tier has missed ends at or below the present end of all writes, and every
// later one goes to it: its floor is there. A Refiller has a hole up to there. The caller holds
// mu.
func (t *Tiered) restarted(tr *tier, at int64, err error) bool {
	if err != nil {
		tr.failures++
		tr.backoff = min(2*tr.backoff, 64*t.opts.RetryAfter)
		tr.retryAt = time.Now().Add(tr.backoff)
		return false
	}
	if t.closed {
		return false
	}
	floor := tr.alignUp(t.tail)
	if tr.index == t.commit && t.keepsWrites() && t.writes.Settled() < t.tail {
		tr.doubtful = t.tail
	}
	if tr.refiller != nil {
		tr.refiller.Missed(at, floor)
		floor = 0
	}
	tr.floor.Store(floor)
	tr.reason, tr.retryAt = nil, time.Time{}
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

// keepsWrites reports whether the progress of writes is needed.
func (t *Tiered) keepsWrites() bool { return t.refills || t.commit < len(t.tiers)-1 }
