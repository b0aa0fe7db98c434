package redytier

// This file is what a session can promise beyond the order of overlapping requests
// (A4): a barrier between requests, and a strict order of all.

// Barrier orders requests across regions: what the session is asked for before it
// has ended before anything that it is asked for afterwards begins. It does not
// wait; until it is passed the session answers device.ErrQueueFull.
func (s *Session) Barrier() {
	s.ring() // so that what is to end can
	if s.underway > 0 {
		s.barrier, s.stopped = true, true
	}
}

// resume goes on after a full connection, or at a barrier, if it can.
func (s *Session) resume() {
	if s.rest.buf != nil {
		p := s.rest
		s.rest, s.stopped = piece{}, false
		s.issue(p)
		s.ring() // it was submitted when it was new
		if s.stopped {
			return
		}
	}
	s.barrier = s.barrier && !s.quiet()
	s.stopped = s.barrier
}

// quiet says whether nothing is under way or held.
func (s *Session) quiet() bool {
	for _, c := range s.conns {
		if !c.passed(c.issued()) {
			return false
		}
	}
	return s.held == 0
}

// alone says whether nothing is under way or held but on a lane's own connection,
// which keeps the order by itself.
func (s *Session) alone(l *lane) bool {
	for _, c := range s.conns {
		if c != l.conn && c != l.mirror && !c.passed(c.issued()) {
			return false
		}
	}
	return s.held == len(l.held)
}
