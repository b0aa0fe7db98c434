package redytier

import (
	"slices"
	"sync"
)

// A write to a mirrored region goes to two places, over two connections. Writes of several sessions could
// take effect in one order at one place, and in another one at the other: then bytes would change when the
// mirror takes the region's place. So a write waits until earlier ones on the same bytes have ended at
// both places.

// twins are the writes to a mirrored region that have not ended, of all sessions.
type twins struct {
	mu  sync.Mutex
	all []*twin // in the order in which they take effect
}

// twin is one of them. Its session owns it.
type twin struct {
	of       *twins
	session  *Session
	from, to int64 // bytes of the region
	left     int   // bytes that are not settled, at both places, and 1 until all are issued
	waits    bool  // the session may sleep until its turn has come; guarded by of.mu
}

// add adds a session's write, after all others.
func (t *twins) add(s *Session, from, to int64) *twin {
	w := &twin{of: t, session: s, from: from, to: to, left: 1}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, w)
	return w
}

func (w *twin) overlaps(e *twin) bool { return e.from < w.to && w.from < e.to }

// first reports whether no earlier write overlaps it. Else its session is woken when it may be.
func (w *twin) first() bool {
	t := w.of
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.all {
		if e == w {
			break
		}
		if w.overlaps(e) {
			w.waits = true
			return false
		}
	}
	return true
}

// settle notes that n bytes are settled. With the last ones the write ends.
func (w *twin) settle(n int) {
	if w.left -= n; w.left > 0 {
		return
	}
	t := w.of
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(e *twin) bool { return e == w })
	for _, e := range t.all {
		if e.waits && w.overlaps(e) {
			e.waits = false
			e.session.wake()
		}
	}
}
