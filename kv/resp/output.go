package resp

import (
	"errors"
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
	leastReplies  = 2 * batchBytes
)

// Where there is no room for replies, clients are disconnected that have not taken
// as much as outputChunk of theirs for longer than stuckAfter: nobody who reads is so
// slow. Who waits for room holds a worker, and looks again so often at least.
const (
	outputChunk = 256 << 10
	stuckAfter  = 100 * time.Millisecond
	roomEvery   = 20 * time.Millisecond
)

// output is what a connection owes its client. Others read it.
type output struct {
	charged atomic.Int64 // bytes that the budget has given for the replies
	since   atomic.Int64 // when the write under way began, in Unix time's nanoseconds; 0: there is none
}

// room is a budget for replies, and who waits for it.
type room struct {
	budget
	waiting atomic.Int64
	freed   chan struct{} // holds one when something was given back since somebody waits
}

// charge takes from the budget what the replies hold, or gives back what they do
// not hold any more. It waits for room; for more than there ever is, until nobody
// else has any. Where half of the workers do so, the client has to go instead: the
// others are for those who ask for little.
func (c *client) charge() {
	want, have := max(int64(cap(c.out)-restingOutput), 0), c.output.charged.Load()
	s := c.server
	r := &s.replies
	switch {
	case want == have:
		return
	case want < have:
		r.give(have - want)
		r.wake()
	case r.take(want - have):
	case r.waiting.Add(1) > int64(max(s.opts.Sessions/2, 1)):
		r.waiting.Add(-1)
		s.counts.slow.Add(1)
		s.opts.Logger.Debug("no room for the replies to a client", "client", c.id, "bytes", cap(c.out))
		c.silence(0)
		c.out = nil
		r.give(have)
		want = 0
	default:
		c.waitForRoom(have, want)
		r.waiting.Add(-1)
	}
	c.output.charged.Store(want)
}

func (c *client) waitForRoom(have, want int64) {
	s := c.server
	r := &s.replies
	ticker := time.NewTicker(roomEvery)
	defer ticker.Stop()
	for !r.take(want-have) && !r.used.CompareAndSwap(have, want) {
		s.cutStuck()
		select {
		case <-r.freed:
		case <-ticker.C:
		case <-s.done:
			r.used.Add(want - have) // it ends soon
			return
		}
	}
	r.wake() // others may find room, too
}

// wake has one of those who wait look again.
func (r *room) wake() {
	if r.waiting.Load() > 0 {
		select {
		case r.freed <- struct{}{}:
		default:
		}
	}
}

// cutStuck disconnects the clients that hold room for replies, and do not take them.
// Their goroutines notice, and give the room back.
func (s *Server) cutStuck() {
	stuck := time.Now().Add(-stuckAfter).UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		if since := c.output.since.Load(); since == 0 || since > stuck || c.output.charged.Load() == 0 {
			continue
		}
		if err := c.conn.SetWriteDeadline(longAgo); err != nil {
			s.opts.Logger.Debug("cutting a client off", "client", c.id, "err", err)
		}
	}
}

// owe notes that replies from now on, and those that wait, are not sent before everything
// is as durable as promised that has been written so far.
func (c *client) owe() { c.owes = c.server.store.NextCommit() }

// silence ends the connection where a reply is missing: of those that wait, the first n
// bytes are sent, and nothing behind them, which the client would take for others.
func (c *client) silence(n int) {
	if !c.silent {
		c.quit, c.silent, c.audible = true, true, n
	}
}

// write sends the replies, those to writes when these are as durable as promised. A
// client that does not take them within the time has had enough.
func (c *client) write() {
	if c.silent {
		c.out, c.audible = c.out[:min(c.audible, len(c.out))], 0
	}
	if len(c.out) == 0 {
		return
	}
	if err := c.server.committer.wait(c.owes); err != nil {
		c.out = appendError(c.out[:0], "MISCONF what was written is not durable: "+err.Error())
		c.silence(0)
	}
	c.owes = 0
	c.beginWrite()
	defer c.endWrite()
	if cap(c.out) <= restingOutput {
		c.send(c.out, time.Now())
		c.out = c.out[:0]
		return
	}
	if len(c.out) > plainReplies {
		c.plain = 0
	}
	c.charge()
	for left := c.out; len(left) > 0; {
		n := min(len(left), outputChunk)
		now := time.Now()
		c.output.since.Store(now.UnixNano())
		if !c.send(left[:n], now) {
			break
		}
		left = left[n:]
	}
	c.output.since.Store(0)
	c.out = c.out[:0]
	c.dropLarge()
}

// tryWrite is write in a loop, which cannot wait: it says whether all is sent. An error
// ends the connection.
func (c *client) tryWrite() (done bool, err error) {
	s := c.server
	if len(c.out) >= fullOutput || !s.committer.tryWait(c.owes) || cap(c.out) > restingOutput && !c.tryCharge() {
		return false, nil
	}
	c.owes = 0
	if len(c.out) == 0 {
		return true, nil
	}
	n, err := c.transmit(c.out)
	if err != nil || n < len(c.out) {
		c.out = c.out[n:]
		return false, err
	}
	c.out = c.out[:0]
	c.dropLarge()
	return true, nil
}

// errOwed says that replies were to be sent that promise what is not so.
var errOwed = errors.New("resp: replies to writes that are not durable")

// transmit is the only way to the client. All that is owed has been waited for.
func (c *client) transmit(b []byte) (n int, err error) {
	if c.owes != 0 {
		return 0, errOwed
	}
	n, err = c.conn.Write(b)
	c.server.counts.out.Add(uint64(n))
	return n, err
}

// dropLarge lets go of an empty buffer that is too large to keep, or for which there
// is too little room.
func (c *client) dropLarge() {
	if cap(c.out) > keptOutput || cap(c.out) > restingOutput && c.server.replies.low() {
		c.out = nil
	}
	c.charge()
}

// tryCharge is charge for who cannot wait: it says whether there was room.
func (c *client) tryCharge() bool {
	want, have := max(int64(cap(c.out)-restingOutput), 0), c.output.charged.Load()
	if want > have && !c.server.replies.take(want-have) {
		return false
	}
	if want > have {
		c.output.charged.Store(want)
	}
	return true
}

// send has the client take some bytes within the time, or quit.
func (c *client) send(b []byte, now time.Time) (ok bool) {
	timeout := c.server.opts.WriteTimeout
	// A deadline costs more than looking at the clock, so it is set for twice
	// the time, once in that time.
	if c.writeUntil.Sub(now) < timeout {
		c.writeUntil = now.Add(2 * timeout)
		if err := c.conn.SetWriteDeadline(c.writeUntil); err != nil {
			c.silence(0)
		}
	}
	_, err := c.transmit(b)
	if err != nil {
		if isTimeout(err) {
			c.server.counts.slow.Add(1)
		}
		c.server.opts.Logger.Debug("writing to client", "client", c.id, "err", err)
		c.silence(0)
	}
	return err == nil
}
