package redytier

// This file orders a session's requests across connections: Barrier, Config.StrictOrder, and
// the rest of a request that a full connection stopped.

// Barrier orders requests across regions: requests before it end before later ones begin. It
// does not wait; until then the session answers device.ErrQueueFull.
func (s *Session) Barrier() {
	s.ring() // so that pending requests can end
	if s.pending > 0 {
		s.barrier, s.stopped = true, true
	}
}

// resume continues after a full connection or a barrier, if possible.
func (s *Session) resume() {
	if s.rest.buf != nil {
		p := s.rest
		s.rest, s.stopped = piece{}, false
		s.issue(p)
		s.ring() // the request was submitted before
		if s.stopped {
			return
		}
	}
	s.barrier = s.barrier && !s.quiet()
	s.stopped = s.barrier
}

// quiet reports whether nothing is pending or held.
func (s *Session) quiet() bool {
	for _, c := range s.busy {
		if !c.passed(c.issued()) {
			return false
		}
	}
	return s.held == 0
}

// alone reports whether nothing is pending or held except on the queue's own connection,
// which keeps the order itself.
func (s *Session) alone(q *regionQueue) bool {
	for _, c := range s.busy {
		if c != q.conn && c != q.mirror && !c.passed(c.issued()) {
			return false
		}
	}
	return s.held == len(q.held)
}
