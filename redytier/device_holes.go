package redytier

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

const (
	// recentHoles is the number of holes that may appear while a read is pending before it
	// is assumed to have met one.
	recentHoles = 64
	// maxHoles bounds the spans of a set. Beyond that, the two oldest are joined with the
	// addresses between them.
	maxHoles = 1024
)

// holes are the addresses that a device lacks in the part of the log that it answers.
//
// A hole is added before its place can return other bytes than the log's. So a read that
// returned such bytes is polled after the addition. The hole may have been filled by then.
// Each addition therefore has a number, which operations compare with the number when they
// began.
//
// A write into a hole, or a refill, is a fill. Fills never overlap, since their order is
// unknown. A fill that ends removes its span only if that was not added again meanwhile.
type holes struct {
	set atomic.Pointer[holeSet] // nil before the first hole

	isLate atomic.Bool // late is not empty

	mu    sync.Mutex    // guards replacing set, and the fields below
	late  spans         // places in the cache that writes of failed connections may still reach
	fills []span        // pending
	lost  bool          // written bytes were lost since the last Sync
	ready chan struct{} // holds a token when fillable may find more than before
}

// holeSet is one state of the holes. It is never changed.
type holeSet struct {
	spans     spans
	unchecked *unchecked // pieces that are holes, too, until they are checked; nil: none
	added     uint64     // number of spans ever added
	// recent holds the last additions, each at its number modulo recentHoles.
	recent [recentHoles]span
}

// look reports whether x overlaps a hole, and returns the number of additions so far.
func (h *holes) look(x span) (added uint64, hole bool) {
	set := h.set.Load()
	if set == nil {
		return 0, false
	}
	return set.added, set.spans.overlap(x) || set.unchecked != nil && set.unchecked.overlap(x)
}

// since reports whether a hole that overlaps x was added after the first added ones.
func (h *holes) since(added uint64, x span) bool {
	set := h.set.Load()
	if set == nil || set.added == added || x.from >= x.to {
		return false
	}
	if set.added-added > recentHoles {
		return true
	}
	for ; added < set.added; added++ {
		if x.overlaps(set.recent[added%recentHoles]) {
			return true
		}
	}
	return false
}

// current returns the set for changing. The caller holds mu.
func (h *holes) current() *holeSet {
	if set := h.set.Load(); set != nil {
		return set
	}
	return new(holeSet)
}

// add makes a hole of x and the unchecked pieces there, and forgets those below begin. The
// caller holds mu.
func (h *holes) add(x span, begin int64) {
	if x.from = max(x.from, begin); x.from >= x.to {
		return
	}
	next := *h.current()
	u := next.unchecked
	if u != nil {
		x = u.widened(x)
		x.from = max(x.from, begin)
	}
	if len(next.spans) == 0 {
		offer(h.ready) // the first one; while there are some, refills look for more
	}
	next.recent[next.added%recentHoles] = x
	next.added++
	next.spans = next.spans.cut(span{0, begin}).add(x)
	if len(next.spans) > maxHoles {
		next.spans = next.spans.add(span{next.spans[0].to, next.spans[1].from})
	}
	h.set.Store(&next)
	if u == nil {
		return
	}
	// Not before: a reader that has loaded the earlier set finds the pieces unchecked, or learns
	// by since that they are holes.
	u.take(x)
	h.forgetChecked()
}

// setLate replaces late. The caller holds mu.
func (h *holes) setLate(late spans) {
	h.late = late
	h.isLate.Store(len(late) > 0)
}

// forgetChecked forgets the unchecked pieces if there are none left. The caller holds mu.
func (h *holes) forgetChecked() {
	if set := h.current(); set.unchecked != nil && set.unchecked.left == 0 {
		next := *set
		next.unchecked = nil
		h.set.Store(&next)
	}
}

// fill begins a fill of x unless another one overlaps it. The caller holds mu.
func (h *holes) fill(x span) bool {
	if slices.ContainsFunc(h.fills, x.overlaps) {
		return false
	}
	h.fills = append(h.fills, x)
	return true
}

// filled ends a fill of x that began after the first added additions, and reports whether it
// closed the hole.
func (h *holes) filled(x span, added uint64, ok bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.fills, x); i >= 0 {
		h.fills = slices.Delete(h.fills, i, i+1)
	}
	if !ok || h.since(added, x) {
		return false
	}
	next := *h.current()
	next.spans = next.spans.cut(x)
	h.set.Store(&next)
	return true
}

// span is the addresses from to to-1.
type span struct{ from, to int64 }

func (x span) overlaps(y span) bool { return y.from < x.to && x.from < y.to }

// spans is a set of addresses, as ascending spans that neither overlap nor touch.
// It is never changed: add and cut return another one.
type spans []span

// after is the number of the first span that ends behind addr.
func (s spans) after(addr int64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].to > addr })
}

// overlap reports whether an address of x is in the set.
func (s spans) overlap(x span) bool {
	i := s.after(x.from)
	return i < len(s) && s[i].from < x.to && x.from < x.to
}

// cover reports whether all of x is in the set.
func (s spans) cover(x span) bool {
	i := s.after(x.from)
	return x.from >= x.to || i < len(s) && s[i].from <= x.from && x.to <= s[i].to
}

// add returns the set with x.
func (s spans) add(x span) spans {
	if x.from >= x.to {
		return s
	}
	i, k := s.after(x.from-1), s.after(x.to) // spans i to k-1 overlap or touch x
	if k < len(s) && s[k].from <= x.to {
		k++
	}
	if i < k {
		x = span{min(x.from, s[i].from), max(x.to, s[k-1].to)}
	}
	sum := make(spans, 0, len(s)+1)
	sum = append(append(sum, s[:i]...), x)
	return append(sum, s[k:]...)
}

// cut returns the set without x.
func (s spans) cut(x span) spans {
	if !s.overlap(x) {
		return s
	}
	rest := make(spans, 0, len(s)+1)
	for _, y := range s {
		if y.from < x.from {
			rest = append(rest, span{y.from, min(y.to, x.from)})
		}
		if y.to > x.to {
			rest = append(rest, span{max(y.from, x.to), y.to})
		}
	}
	return rest
}

// within returns the addresses that both sets have.
func (s spans) within(t spans) (both spans) {
	for _, x := range s {
		for i := t.after(x.from); i < len(t) && t[i].from < x.to; i++ {
			both = both.add(span{max(x.from, t[i].from), min(x.to, t[i].to)})
		}
	}
	return both
}

// size is how many addresses are in the set.
func (s spans) size() int64 {
	var n int64
	for _, x := range s {
		n += x.to - x.from
	}
	return n
}
