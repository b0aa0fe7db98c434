//go:build verbs && linux && cgo

package verbs

// staging is a ring of registered memory through which operations go whose
// buffers are not registered. Pieces are taken and given back in the same order,
// that of the operations. What was taken is in [tail, head). Once nothing is out it
// goes on from its beginning: few operations at a time stay in memory that caches
// hold.
type staging struct {
	memory     []byte // a power of two
	head, tail uint64
}

// stagingAlign keeps pieces off each other's cache lines.
const stagingAlign = 64

// take returns n bytes in one piece, n at most half the ring, and the mark to give
// it back by. It reports false if there is no room yet.
func (s *staging) take(n int) (piece []byte, mark uint64, ok bool) {
	size := uint64(len(s.memory))
	start := s.head
	if at := start & (size - 1); at+uint64(n) > size {
		start = s.anew() // the end of the ring is too short
	}
	end := (start + uint64(n) + stagingAlign - 1) &^ (stagingAlign - 1)
	if end-s.tail > size {
		return nil, 0, false
	}
	s.head = end
	at := start & (size - 1)
	return s.memory[at : at+uint64(n) : at+uint64(n)], end, true
}

// give returns everything below the mark.
func (s *staging) give(mark uint64) {
	s.tail = max(s.tail, mark) // those who took nothing have a mark from before
	if s.tail == s.head {
		s.head = s.anew()
		s.tail = s.head
	}
}

// anew is the first mark from head on that is the beginning of the memory.
func (s *staging) anew() uint64 {
	size := uint64(len(s.memory))
	return (s.head + size - 1) &^ (size - 1)
}
