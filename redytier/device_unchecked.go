package redytier

import (
	"iter"
	"math/bits"
	"sync/atomic"
)

// unchecked are the pieces of earlier lives that were not compared with their records yet. They
// are kept apart from the spans of holes, since checks of pieces that reads ask for would cut
// these into many. holes.mu guards changes.
type unchecked struct {
	shift uint            // log2 of a piece
	first int64           // number of the first piece
	bits  []atomic.Uint64 // by number, from first on
	left  int64           // bits set
	low   int64           // pieces below are not unchecked
}

// newUnchecked returns the pieces from first to end-1.
func newUnchecked(shift uint, first, end int64) *unchecked {
	u := &unchecked{shift: shift, first: first, low: first, left: end - first}
	u.bits = make([]atomic.Uint64, (u.left+63)/64)
	for i := range u.bits {
		u.bits[i].Store(1<<min(64, u.left-int64(i)*64) - 1)
	}
	return u
}

// has reports whether a piece is unchecked.
func (u *unchecked) has(piece int64) bool {
	i := piece - u.first
	return i >= 0 && i>>6 < int64(len(u.bits)) && u.bits[i>>6].Load()>>(i&63)&1 != 0
}

// overlap reports whether an unchecked piece overlaps x.
func (u *unchecked) overlap(x span) bool {
	if x.from >= x.to {
		return false
	}
	for piece := x.from >> u.shift; piece<<u.shift < x.to; piece++ {
		if u.has(piece) {
			return true
		}
	}
	return false
}

// remove removes a piece that is in the set.
func (u *unchecked) remove(piece int64) {
	i := piece - u.first
	u.bits[i>>6].And(^(uint64(1) << (i & 63)))
	u.left--
}

// over yields the pieces that overlap x.
func (u *unchecked) over(x span) iter.Seq[int64] {
	from := max(x.from>>u.shift, u.first)
	to := min((x.to-1)>>u.shift+1, u.first+int64(len(u.bits))*64)
	return func(yield func(int64) bool) {
		for piece := from; piece < to; piece++ {
			if u.has(piece) && !yield(piece) {
				return
			}
		}
	}
}

// widened returns x with all addresses of the pieces that overlap it.
func (u *unchecked) widened(x span) span {
	all := x
	for piece := range u.over(x) {
		all = span{min(all.from, piece<<u.shift), max(all.to, (piece+1)<<u.shift)}
	}
	return all
}

// take removes the pieces that overlap x.
func (u *unchecked) take(x span) {
	for piece := range u.over(x) {
		u.remove(piece)
	}
}

// newest returns the newest piece of those up to a number, or ok false if there is none.
func (u *unchecked) newest(upTo int64) (piece int64, ok bool) {
	last := min(upTo-u.first, int64(len(u.bits))*64-1)
	if last < 0 {
		return 0, false
	}
	mask := ^uint64(0) >> (63 - last&63)
	for i := last >> 6; i >= 0; i-- {
		if word := u.bits[i].Load() & mask; word != 0 {
			return u.first + i*64 + int64(bits.Len64(word)) - 1, true
		}
		mask = ^uint64(0)
	}
	return 0, false
}

// drop removes the pieces that end at begin or below: the ring may hold other bytes in their
// place.
func (u *unchecked) drop(begin int64) {
	for ; (u.low+1)<<u.shift <= begin && u.left > 0; u.low++ {
		if u.has(u.low) {
			u.remove(u.low)
		}
	}
}

// missing is the number of unchecked bytes from begin on.
func (u *unchecked) missing(begin int64) int64 {
	if u == nil {
		return 0
	}
	u.drop(begin)
	return u.left << u.shift
}
