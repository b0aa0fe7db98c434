package redytier

import (
	"math/bits"
	"sync/atomic"
)

// minSegments is the least number of segments of a device's ring. The log drops one segment
// at a time when it wraps.
const minSegments = 32

// segments maps a log onto a ring of memory: log address a is stored at a mod size. The log is
// divided into segments; each place of the ring holds one at a time, and a writer enters it
// before it writes.
//
// Writers of one place never race. A writer of a later segment enters a place only when no
// writer of the earlier segment is pending there: two queues have two connections, so their
// writes may arrive in any order.
type segments struct {
	size   int64 // of the ring in bytes, a multiple of a segment
	shift  uint  // log2 of a segment
	places []atomic.Uint64
}

// admission is the result of an attempt to enter a segment.
type admission int

const (
	entered   admission = iota
	overtaken           // a later segment has the place
	occupied            // an earlier segment is still being written
)

// occupancy is the state of one place. The high 42 bits hold the number of its segment plus
// one; zero means none. The low 22 bits hold the number of writers in it. A cache has at least
// 4 KiB, so a segment has at least 128 bytes, and the 48 bits of a log address leave 41 for
// its number.
type occupancy uint64

const writerBits = 22

func occupancyOf(segment int64, writers int) occupancy {
	return occupancy(uint64(segment+1)<<writerBits | uint64(writers))
}

func (o occupancy) segment() int64 { return int64(o>>writerBits) - 1 }
func (o occupancy) writers() int   { return int(o & (1<<writerBits - 1)) }

func newSegments(capacity int64) *segments {
	shift := uint(bits.Len64(uint64(capacity/minSegments)) - 1)
	n := capacity >> shift
	return &segments{size: n << shift, shift: shift, places: make([]atomic.Uint64, n)}
}

// of is the segment that holds a log address.
func (s *segments) of(addr int64) int64 { return addr >> s.shift }

// start is a segment's first log address.
func (s *segments) start(segment int64) int64 { return segment << s.shift }

func (s *segments) place(segment int64) *atomic.Uint64 {
	return &s.places[segment%int64(len(s.places))]
}

// enter adds a writer to segments first to last, or to none of them.
func (s *segments) enter(first, last int64) admission {
	for i := first; i <= last; i++ {
		if a := s.enterOne(i); a != entered {
			s.leave(first, i-1)
			return a
		}
	}
	return entered
}

func (s *segments) enterOne(segment int64) admission {
	p := s.place(segment)
	for {
		old := occupancy(p.Load())
		writers := 0
		switch {
		case old.segment() > segment:
			return overtaken
		case old.segment() == segment:
			writers = old.writers()
		case old.writers() > 0:
			return occupied
		}
		if p.CompareAndSwap(uint64(old), uint64(occupancyOf(segment, writers+1))) {
			return entered
		}
	}
}

// leave takes a writer out of segments first to last.
func (s *segments) leave(first, last int64) {
	for i := first; i <= last; i++ {
		s.place(i).Add(^uint64(0))
	}
}
