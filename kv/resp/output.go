package resp

import (
	"sync/atomic"
	"time"
)

// Replies wait in a connection's buffer while its client takes them. Beyond
// restingOutput bytes these buffers come out of the server's budget, which is
// asked before the connection lets go of its worker: so no more replies than the
// budget has, and those of as many batches as there are workers, are in memory,
// however many clients do not read.
const (
	restingOutput = 16 << 10
	leastReplies  = 4 << 20
)

// Who wants room looks so often for a client that has been taking its replies for
// longer than takingLong: the slowest is disconnected.
const (
	takingLong = time.Second
	roomEvery  = 20 * time.Millisecond
)

// output is what a connection owes its client. Others read it.
type output struct {
	charged atomic.Int64 // bytes that the budget has given for the replies
	since   atomic.Int64 // when the write under way began, in Unix time's nanoseconds; 0: there is none
}

// charge takes from the budget what the replies hold, or gives back what they do
// not hold any more. It waits for room; for more than there ever is, until nobody
// else has any.
func (c *client) charge() {
	want, have := max(int64(cap(c.out)-restingOutput), 0), c.output.charged.Load()
	replies, s := &c.server.replies, c.server
	if want == have {
		return
	}
	if want < have {
		replies.give(have - want)
		c.output.charged.Store(want)
		return
	}
	for !replies.take(want-have) && !replies.used.CompareAndSwap(have, want) {
		if s.closing.Load() {
			replies.used.Add(want - have)
			break
		}
		s.cutSlowest()
		timer := time.NewTimer(roomEvery)
		select {
		case <-timer.C:
		case <-s.done:
			timer.Stop()
		}
	}
	c.output.charged.Store(want)
}

// cutSlowest disconnects the client that has been taking large replies for longest,
// if that is too long. Its goroutine notices, and gives the room back.
func (s *Server) cutSlowest() {
	var slowest *client
	began := time.Now().Add(-takingLong).UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		if since := c.output.since.Load(); since != 0 && since < began && c.output.charged.Load() > 0 {
			slowest, began = c, since
		}
	}
	if slowest == nil {
		return
	}
	if err := slowest.conn.SetWriteDeadline(longAgo); err != nil {
		s.opts.Logger.Debug("cutting a client off", "client", slowest.id, "err", err)
	}
}

// dropLarge lets go of a large buffer of replies that have been sent, if it is too
// large to keep or there is little room.
func (c *client) dropLarge() {
	if cap(c.out) > keptOutput || cap(c.out) > restingOutput && c.server.replies.low() {
		c.out = nil
	}
	if c.output.charged.Load() > 0 {
		c.charge()
	}
}
