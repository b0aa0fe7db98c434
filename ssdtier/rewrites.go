package ssdtier

import (
	"slices"
	"sync"
)

// rewrites separates the writes of a segment from second reads of blocks that seem damaged.
// A log writes the block in which it ends again, and the new bytes are on the disk before
// the new sum is set, so a read in between finds that they do not agree. Such a read is
// repeated while no write of the blocks is pending; blocks that do not agree then are
// damaged.
//
// A write waits only for second reads, which always end. Writes must not wait for each
// other: the goroutine that begins them also polls for their completions.
type rewrites struct {
	mu      sync.Mutex // guards the fields below
	ended   sync.Cond  // signalled when a span leaves writes or looks
	writes  []span     // pending
	looks   []span     // second reads
	waiting int        // goroutines that wait for ended
}

// span is a range of a segment's bytes.
type span struct{ from, to int64 }

func (s span) overlaps(all []span) bool {
	return slices.ContainsFunc(all, func(o span) bool { return s.from < o.to && o.from < s.to })
}

// begin adds a span to a list when it overlaps none of another list.
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

// look calls do, a second read, while no write of the span is pending.
func (r *rewrites) look(s span, do func()) {
	r.begin(s, &r.looks, &r.writes)
	defer r.end(s, &r.looks)
	do()
}
