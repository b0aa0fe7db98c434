package ssdtier

import (
	"slices"
	"sync"
)

// rewrites keeps writes of a segment and looks at its damage apart. A log writes the
// block that it ends in again, and its new bytes are on the disk before its new sum is
// set, so that a read in between finds the two at odds. Who found that looks again
// while no write of these blocks is under way. What is at odds then is damaged.
//
// A write waits only for looks, which end by themselves: writes are begun by those who
// poll for their ends, and may not wait for one another.
type rewrites struct {
	mu      sync.Mutex
	ended   sync.Cond // one of those that follow
	writes  []span    // under way
	looks   []span
	waiting int // for ended
}

// span is a range of a segment's bytes.
type span struct{ from, to int64 }

func (s span) overlaps(all []span) bool {
	return slices.ContainsFunc(all, func(o span) bool { return s.from < o.to && o.from < s.to })
}

// begin enters a span in a list once it overlaps none of another list.
func (r *rewrites) begin(s span, list, others *[]span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended.L = &r.mu
	for s.overlaps(*others) {
		r.waiting++
		r.ended.Wait()
		r.waiting--
	}
	*list = append(*list, s)
}

func (r *rewrites) end(s span, list *[]span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(*list, s)
	(*list)[i] = (*list)[len(*list)-1]
	*list = (*list)[:len(*list)-1]
	if r.waiting > 0 {
		r.ended.Broadcast()
	}
}

func (r *rewrites) beginWrite(s span) { r.begin(s, &r.writes, &r.looks) }
func (r *rewrites) endWrite(s span)   { r.end(s, &r.writes) }

// look calls do while no write of that span is under way.
func (r *rewrites) look(s span, do func()) {
	r.begin(s, &r.looks, &r.writes)
	defer r.end(s, &r.looks)
	do()
}
