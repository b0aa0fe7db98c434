package resp

import (
	"errors"
	"sync/atomic"
	"time"
)

// Replies are kept in a connection's buffer until its client reads them. The part of a buffer
// beyond restingOutput bytes is taken from the server's budget before the connection gives
// back its worker. So the replies in memory are limited to the budget and those of one batch
// for each worker, however many clients do not read.
const (
	restingOutput = 16 << 10
	leastReplies  = 2 * batchBytes
)

// If the budget is used up, clients are disconnected that have not read outputChunk bytes
// within stuckAfter, which every client that reads does. A connection that waits for the
// budget holds a worker, and tries again at least every roomEvery.
const (
	outputChunk = 256 << 10
	stuckAfter  = 100 * time.Millisecond
	roomEvery   = 20 * time.Millisecond
)

// output describes the replies that a connection is sending. Other goroutines read it.
type output struct {
	charged atomic.Int64 // bytes of the budget that are taken for the replies
	since   atomic.Int64 // Unix time in nanoseconds at which the present write began; 0 if there is none
}

// room is a budget for replies, for which connections can wait.
type room struct {
	budget
	waiting atomic.Int64  // connections that wait
	freed   chan struct{} // holds one if bytes were given back while connections wait
}

// charge takes from the budget the bytes of the reply buffer, or gives back those of a buffer
// that is gone. It waits until the budget has them; for more than the whole budget, until no
// other connection has any. If half of the workers wait, the client is disconnected instead:
// the other workers are for clients with small replies.
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
			r.used.Add(want - have) // the connection ends soon
			return
		}
	}
	r.wake() // there may be bytes for others
}

// wake lets one waiting connection try again.
func (r *room) wake() {
	if r.waiting.Load() > 0 {
		select {
		case r.freed <- struct{}{}:
		default:
		}
	}
}

// cutStuck disconnects clients that hold bytes of the budget and do not read. Their goroutines
// see the error of the write, and give the bytes back.
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

// owe makes the unsent replies, and later ones, wait until all writes so far are as durable as
// promised.
func (c *client) owe() { c.owes = c.server.store.NextCommit() }

// silence ends the connection after the first n bytes of out, where a reply is missing: the
// client would take a later reply for it.
func (c *client) silence(n int) {
	if !c.silent {
		c.quit, c.silent, c.audible = true, true, n
	}
}

// write sends the replies after the writes among their commands are as durable as promised. A
// client that does not read them within Options.WriteTimeout is disconnected.
func (c *client) write() {
	if c.silent {
		c.out, c.audible = c.out[:min(c.audible, len(c.out))], 0
	}
	if len(c.out) == 0 {
		return
	}
	if err := c.server.committer.wait(c.owes); err != nil {
		c.out = appendError(c.out[:0], "MISCONF the write is not durable: "+err.Error())
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

// tryWrite is write in a loop, which must not wait. It says whether all replies are sent. An
// error ends the connection.
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

// errOwed says that replies would be sent before their writes are durable.
var errOwed = errors.New("resp: replies to writes that are not durable")

// transmit writes to the connection; no other function does. The caller has waited for owes.
func (c *client) transmit(b []byte) (n int, err error) {
	if c.owes != 0 {
		return 0, errOwed
	}
	n, err = c.conn.Write(b)
	c.server.counts.out.Add(uint64(n))
	return n, err
}

// dropLarge frees an empty buffer that is too large to keep, or that the budget is short of.
func (c *client) dropLarge() {
	if cap(c.out) > keptOutput || cap(c.out) > restingOutput && c.server.replies.low() {
		c.out = nil
	}
	c.charge()
}

// tryCharge is charge without waiting. It says whether the budget had the bytes.
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

// send writes b within Options.WriteTimeout, or ends the connection.
func (c *client) send(b []byte, now time.Time) (ok bool) {
	timeout := c.server.opts.WriteTimeout
	// Setting a deadline costs more than reading the clock, so it is set to twice the time-out,
	// at most once in that time.
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
