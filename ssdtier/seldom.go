package ssdtier

import (
	"sync"
	"time"
)

// seldom lets the first of many like messages pass, and then one a minute at most. It is safe for
// concurrent use.
type seldom struct {
	mu   sync.Mutex
	next time.Time // the next message passes from then on
	left int       // messages since the last one that has passed
}

// pass reports whether a message passes at a time, and how many before it did not.
func (s *seldom) pass(now time.Time) (left int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.next) {
		s.left++
		return 0, false
	}
	left, s.left, s.next = s.left, 0, now.Add(time.Minute)
	return left, true
}
