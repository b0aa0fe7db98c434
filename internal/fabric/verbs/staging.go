//go:build verbs && linux && cgo

package verbs

// staging is a ring of registered memory for operations whose buffers are not registered.
// Pieces are taken and returned in the order of the operations; [tail, head) is taken. When
// nothing is taken, the ring restarts at its beginning, so that few operations at a time use
// cached memory.
type staging struct {
	memory     []byte // a power of two
	head, tail uint64
}

// stagingAlign keeps pieces on separate cache lines.
const stagingAlign = 64

// take returns n contiguous bytes, n at most half the ring, and the mark to return them with.
// It returns false if there is no room yet.
func (s *staging) take(n int) (piece []byte, mark uint64, ok bool) {
	size := uint64(len(s.memory))
	start := s.head
	if at := start & (size - 1); at+uint64(n) > size {
		start = s.restart() // the end of the ring is too short
	}
	end := (start + uint64(n) + stagingAlign - 1) &^ (stagingAlign - 1)
	if end-s.tail > size {
		return nil, 0, false
	}
	s.head = end
	at := start & (size - 1)
	return s.memory[at : at+uint64(n) : at+uint64(n)], end, true
}

// give returns all pieces below the mark.
func (s *staging) give(mark uint64) {
	s.tail = max(s.tail, mark) // operations without a piece have an older mark
	if s.tail == s.head {
		s.head = s.restart()
		s.tail = s.head
	}
}

// restart returns the first mark from head on at the beginning of the memory.
func (s *staging) restart() uint64 {
	size := uint64(len(s.memory))
	return (s.head + size - 1) &^ (size - 1)
}
