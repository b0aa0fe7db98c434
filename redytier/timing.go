package redytier

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/internal/metrics"
)

// timing times some of a session's operations, one at a time: from the call until Poll hands the
// completion out. Its fields belong to the session's owner, except those that say otherwise.
//
// An operation that is not timed pays for one flag, which tells that the next one is to be timed.
// About one operation in sampleGap is timed, so the two clock readings of a timed one cost less
// than a thousandth of a session's time, however fast it is. A timed operation counts for all that
// have completed since the one before, so a mean over several sessions is one over operations.
type timing struct {
	armed    bool // the next operation is timed
	passed   int  // operations that have completed since the last timed one
	interval int  // passed at which the next one is timed
	epoch    time.Time
	last     time.Duration // since epoch: the end of the last timed operation

	// began is the time since epoch at which the pending timed operation began, in nanoseconds
	// times two, plus one for a write; 0: none is pending. pending is the number of operations that
	// were pending then, itself included. Any goroutine may read both.
	began   atomic.Int64
	pending atomic.Int64

	restart atomic.Bool   // set at the end of a window: the interval begins at 1 again
	kinds   *[2]latencies // elsewhere: the session's other fields stay on few cache lines
}

const (
	// sampleGap is the time between two timed operations of a session that are more than
	// maxInterval apart.
	sampleGap   = time.Millisecond
	maxInterval = 1 << 10
)

// latencies are those of reads or of writes. The session's owner adds to them, and any goroutine
// may read them.
type latencies struct {
	weight  counter // operations for which the timed ones count
	sum     counter // nanoseconds, by weight
	classes [metrics.LatencyClasses]counter
}

func newTiming() timing {
	return timing{armed: true, interval: 1, epoch: time.Now(), kinds: new([2]latencies)}
}

// kind is the index of reads or writes.
func kind(write bool) int {
	if write {
		return 1
	}
	return 0
}

// begin begins to time an operation, with which that many are pending.
func (t *timing) begin(write bool, pending int) {
	t.armed = false
	t.pending.Store(int64(pending))
	t.began.Store(max(1, int64(time.Since(t.epoch)))<<1 | int64(kind(write)))
}

// end ends the pending timed operation.
func (t *timing) end(write, failed bool) {
	now := time.Since(t.epoch)
	took := now - time.Duration(t.began.Load()>>1)
	t.began.Store(0)
	if !failed {
		l, weight := &t.kinds[kind(write)], uint64(max(t.passed, 1))
		l.weight.add(weight)
		l.sum.add(weight * uint64(took))
		l.classes[metrics.LatencyClass(took)].add(weight)
	}
	if now-t.last < sampleGap {
		t.interval = min(2*t.interval, maxInterval)
	} else {
		t.interval = max(t.interval/2, 1)
	}
	t.passed, t.last = 0, now
}

// due is called when an operation is to be timed, or a window has ended.
func (t *timing) due() {
	if t.restart.Swap(false) { // the session may have become slow
		t.interval = 1
	}
	t.armed = t.began.Load() == 0 && t.passed >= t.interval
}

// pendingFor returns how long the timed operation has been pending, whether it is a write, and the
// number of operations that were pending when it began, itself included. 0: none is. Any goroutine
// may call it.
func (t *timing) pendingFor() (age time.Duration, write bool, pending int64) {
	began := t.began.Load()
	if began == 0 {
		return 0, false, 0
	}
	return time.Since(t.epoch) - time.Duration(began>>1), began&1 != 0, t.pending.Load()
}

// figures are sums over sessions of what reads or writes got, since the cache was created or within
// a window.
type figures struct {
	operations, bytes, weight, sum uint64
	classes                        [metrics.LatencyClasses]uint64

	// Operations that have been pending for a whole window, which no completion tells of.
	stuck    uint64
	stuckFor time.Duration // the longest
}

// add adds those of a session.
func (a *figures) add(l *latencies, operations, bytes uint64) {
	a.operations += operations
	a.bytes += bytes
	a.weight += l.weight.load()
	a.sum += l.sum.load()
	for i := range l.classes {
		a.classes[i] += l.classes[i].load()
	}
}

// since returns what was added since before.
func (a *figures) since(before *figures) *figures {
	d := *a
	d.operations -= before.operations
	d.bytes -= before.bytes
	d.weight -= before.weight
	d.sum -= before.sum
	for i := range d.classes {
		d.classes[i] -= before.classes[i]
	}
	return &d
}

// quantile returns the middle of the class that has a quantile; 0 if nothing was timed.
func (a *figures) quantile(part float64) time.Duration {
	rank, sum := uint64(math.Ceil(part*float64(a.weight))), uint64(0)
	for i, n := range a.classes {
		if sum += n; sum >= rank && n > 0 {
			return metrics.LatencyClassMiddle(i)
		}
	}
	return 0
}

// addFigures adds what the session's operations got to sums by kind.
func (s *Session) addFigures(all *[2]figures) {
	all[0].add(&s.timing.kinds[0], s.counts.reads.load(), s.counts.bytesRead.load())
	all[1].add(&s.timing.kinds[1], s.counts.writes.load(), s.counts.bytesWritten.load())
}
