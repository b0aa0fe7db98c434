package kv

// Operations of a session on one key take effect in the order in which they were begun. A
// read-modify-write that waits for the device has not taken effect yet, so later operations on its
// key wait for it. Operations on other keys do not.
//
// Session.ordering has a class of such pending operations for some bits of the hash: the index of
// the latest one plus 1, or 0. pendingOp.earlier links to the one before in the same way. There are
// more classes than pending operations, so a class seldom has several.

// orderingClasses returns the number of classes for a queue depth, a power of two.
func orderingClasses(depth int) int {
	n := 256
	for n < 2*depth {
		n *= 2
	}
	return n
}

// class returns the class of a hash.
func (s *Session) class(hash uint64) *uint32 { return &s.ordering[hash>>40&uint64(len(s.ordering)-1)] }

// mustWait reports whether a pending operation is on the same key, or on one with the same hash.
func (s *Session) mustWait(hash uint64) bool {
	n := *s.class(hash)
	return n != 0 && s.follows(n, hash)
}

// follows is mustWait for a class that is not empty. It is apart so that mustWait is inlined.
func (s *Session) follows(n uint32, hash uint64) bool {
	for ; n != 0; n = s.pending[n-1].earlier {
		if s.pending[n-1].hash == hash {
			return true
		}
	}
	return false
}

// order adds a pending operation to its class.
func (s *Session) order(n uint32) {
	class := s.class(s.pending[n].hash)
	s.pending[n].earlier = *class
	*class = n + 1
	s.allPendingRMWs++
}

// unorder removes a pending operation from its class.
func (s *Session) unorder(n uint32) {
	at := s.class(s.pending[n].hash)
	for *at != n+1 {
		at = &s.pending[*at-1].earlier
	}
	*at = s.pending[n].earlier
	s.allPendingRMWs--
}
