// Package progress follows the writes of a log to a device: what is written, and what is
// pending or has failed.
package progress

import (
	"math"
	"slices"
)

// Span is a range of addresses.
type Span struct{ From, To int64 }

// Writes are the writes of a log since its start. Writes end in any order. A write that fails
// may be repeated, in other pieces too. The last block of a log is written again when the log
// grows. The zero value is a log that starts at 0.
type Writes struct {
	pending []Span
	failed  []Span // not covered by a later write that succeeded; disjoint
	written int64
	above   []Span // that succeeded, above written; disjoint
}

// Reset starts a log that ends at tail, and forgets its writes.
func (w *Writes) Reset(tail int64) { *w = Writes{pending: w.pending[:0], written: tail} }

// Begin adds a pending write, unless its range is empty or not one of a log.
func (w *Writes) Begin(s Span) {
	if s.From >= 0 && s.To > s.From {
		w.pending = append(w.pending, s)
	}
}

// Fail records that a pending write has failed in part: it counts as failed and as pending until End.
func (w *Writes) Fail(s Span) {
	if slices.Contains(w.pending, s) {
		w.failed = append(subtract(w.failed, s), s)
	}
}

// End records that a write has succeeded, or has failed or never began. It returns false if no
// such write is pending: it began before Reset, or Begin did not add it.
func (w *Writes) End(s Span, succeeded bool) bool {
	i := slices.Index(w.pending, s)
	if i < 0 {
		return false
	}
	w.pending = slices.Delete(w.pending, i, i+1)
	w.failed = subtract(w.failed, s)
	if !succeeded {
		w.failed = append(w.failed, s)
		return true
	}
	w.above = append(subtract(w.above, s), s)
	w.join()
	return true
}

// Truncate forgets the log below an address, which counts as written even if the log goes on there
// without having been written so far. No write below it is pending.
func (w *Writes) Truncate(begin int64) {
	w.failed = subtract(w.failed, Span{math.MinInt64, begin})
	w.written = max(w.written, begin)
	w.join()
}

// join adds what was written above to what was written, where the two meet.
func (w *Writes) join() {
	for {
		i := slices.IndexFunc(w.above, func(a Span) bool { return a.From <= w.written })
		if i < 0 {
			return
		}
		w.written = max(w.written, w.above[i].To)
		w.above = slices.Delete(w.above, i, i+1)
	}
}

// subtract removes a range from disjoint spans.
func subtract(spans []Span, s Span) []Span {
	var after []Span // at most one
	for i := range spans {
		if a := &spans[i]; a.From < s.To && s.From < a.To {
			if s.To < a.To {
				after = append(after, Span{s.To, a.To})
			}
			a.To = s.From // empty if s covers its beginning
		}
	}
	spans = slices.DeleteFunc(spans, func(a Span) bool { return a.To <= a.From })
	return append(spans, after...)
}

// Pending reports whether writes are pending.
func (w *Writes) Pending() bool { return len(w.pending) > 0 }

// Failed reports whether a failed write has not been repeated.
func (w *Writes) Failed() bool { return len(w.failed) > 0 }

// Written is the address below which every byte was written. It does not fall when a block is
// written again.
func (w *Writes) Written() int64 { return w.written }

// Settled is the address below which every byte was written, no write is pending, and none has
// failed since.
func (w *Writes) Settled() int64 {
	low := w.written
	for _, s := range w.pending {
		low = min(low, s.From)
	}
	for _, s := range w.failed {
		low = min(low, s.From)
	}
	return low
}
