package resp

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/kv"
)

// Replies are kept in a connection's buffer until its client reads them. The part of a buffer
// beyond restingOutput bytes is charged to the server's budget before the connection returns
// its worker; what a scan gathers, which has none, is in the budget of requests until then. So replies
// take at most the budgets, and one batch per worker, however many clients do not read.
const (
	restingOutput = 16 << 10
	leastReplies  = 2 * batchBytes
)

// When the budget is exhausted, clients that have not read outputChunk bytes within stuckAfter
// are disconnected. A connection that waits for the budget holds a worker, and tries again at
// least every roomEvery.
const (
	outputChunk = 256 << 10
	stuckAfter  = 100 * time.Millisecond
	roomEvery   = 20 * time.Millisecond
)

// output describes the replies that a connection is sending. Other goroutines read it.
type output struct {
	charged atomic.Int64 // bytes taken from the budget for the replies
	since   atomic.Int64 // Unix time in nanoseconds at which the current write began; 0 if there is none
	queued  atomic.Int64 // bytes of the messages in the queue of a subscriber
}

// room is a budget for replies, for which connections can wait.
type room struct {
	budget
	waiting atomic.Int64  // connections that wait
	freed   chan struct{} // holds one element if bytes were returned while connections wait
}

// charge takes the reply buffer's bytes from the budget, or returns those of a freed buffer.
// It waits until the budget has them or, for more than the whole budget, until no other
// connection has any. If half of the workers wait, the client is disconnected instead: the
// other workers are for clients with small replies.
func (c *client) charge() {
	if c.tryCharge() {
		return
	}
	want, have := int64(cap(c.out)-restingOutput), c.output.charged.Load()
	s := c.server
	r := &s.replies
	if r.waiting.Add(1) <= int64(max(s.opts.Sessions/2, 1)) {
		c.waitForRoom(have, want)
	} else {
		s.counts.slow.Add(1)
		s.opts.Logger.Debug("no room for the replies to a client", "client", c.id, "bytes", cap(c.out))
		c.endAfter(0)
		c.out = nil
		r.give(have)
		want = 0
	}
	r.waiting.Add(-1)
	c.output.charged.Store(want)
}

func (c *client) waitForRoom(have, want int64) {
	s := c.server
	r := &s.replies
	if c.worker != nil { // it is held, but its batch has ended: what waits for all batches goes on
		s.pool.count(-1)
		defer s.pool.count(1)
	}
	ticker := time.NewTicker(roomEvery)
	defer ticker.Stop()
	for !r.raise(have, want) {
		s.disconnectStuck()
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

// raise takes bytes for a connection that has some of the budget and wants more. If no other one has any, it
// gets more than the whole budget.
func (r *room) raise(have, want int64) bool {
	return r.take(want-have) || r.used.CompareAndSwap(have, want)
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

// disconnectStuck disconnects clients that hold bytes of the budget and do not read. The write fails
// in their goroutines, which return the bytes.
func (s *Server) disconnectStuck() {
	stuck := time.Now().Add(-stuckAfter).UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		if since := c.output.since.Load(); since == 0 || since > stuck || c.output.charged.Load() == 0 && c.output.queued.Load() == 0 {
			continue
		}
		if err := c.conn.SetWriteDeadline(longAgo); err != nil {
			s.opts.Logger.Debug("disconnecting a client that does not read", "client", c.id, "err", err)
		}
	}
}

// holdReplies makes the replies that are not sent yet wait until all writes so far are as durable as
// promised. The first reply to one of these writes is at from in out, or will be, or is the one that the
// client holds back while its keys are locked.
func (c *client) holdReplies(from int) {
	if c.locked {
		from = c.lockedAt
	}
	if c.needs == 0 {
		c.needsAt = from
	}
	c.needs = c.server.store.NextCommit()
}

// noteWrite notes that the reply to an operation of the batch follows, if it is the first that may have
// changed anything.
func (c *client) noteWrite(op *kv.Op) {
	if c.firstWrite < 0 && op.Kind != kv.OpRead {
		c.firstWrite = len(c.out)
	}
}

// endAfter ends the connection after the first n bytes of out. A reply is missing there, and
// the client would mistake a later reply for it.
func (c *client) endAfter(n int) {
	c.quit = true
	c.noMore(n)
}

// noMore drops the replies after the first n bytes of out.
func (c *client) noMore(n int) {
	if !c.truncated {
		c.truncated, c.sendable = true, n
	}
}

// dropExcess drops the replies that a client holds back while its keys are locked, if they exceed
// Options.MaxReplies, or a batch's while the budget has no room. Its commands go on without replies.
func (c *client) dropExcess() {
	if !c.locked {
		return
	}
	if n := len(c.out) - c.excessAt; int64(n) > c.server.opts.MaxReplies || n > batchBytes && !c.tryChargeAlone() {
		c.excess = true
	}
	if !c.excess {
		return
	}
	if c.out = c.out[:c.excessAt]; cap(c.out) > batchBytes {
		c.out = slices.Clone(c.out)
		c.tryCharge()
	}
}

// lockOut notes that the client locks keys. Replies are not sent before unlockOut.
func (c *client) lockOut() { c.locked, c.lockedAt, c.excessAt = true, len(c.out), len(c.out) }

// unlockOut notes that the client has unlocked its keys. If it has dropped replies, an error replaces
// all that it held back, and ends the connection.
func (c *client) unlockOut() {
	c.dropExcess()
	excess := c.excess
	c.locked, c.excess = false, false
	if !excess || c.quit {
		return
	}
	c.server.opts.Logger.Warn("the replies of a transaction are too large", "client", c.id)
	c.out = c.out[:c.lockedAt]
	c.error(errTooLargeReply)
	c.truncated = false // no earlier reply is missing
	c.endAfter(len(c.out))
}

// write sends the replies, then the messages for a subscriber.
func (c *client) write() {
	c.writeReplies()
	c.push()
}

// writeReplies sends the replies after the writes among their commands are as durable as
// promised. If one is not, an error replaces its reply, and ends the connection. A client that does
// not read them within Options.WriteTimeout is disconnected.
func (c *client) writeReplies() {
	if c.truncated {
		c.out, c.sendable = c.out[:min(c.sendable, len(c.out))], 0
	}
	if len(c.out) == 0 {
		c.needs = 0 // of replies that were not to be sent
		return
	}
	if err := c.server.committer.wait(c.needs); err != nil {
		c.out = appendError(c.out[:min(c.needsAt, len(c.out))], "MISCONF the write is not durable: "+err.Error())
		c.endAfter(0)
	}
	c.needs = 0
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

// tryWrite is write without waiting, for loops. It reports whether all replies and messages are
// sent. An error ends the connection.
func (c *client) tryWrite() (done bool, err error) {
	s := c.server
	if len(c.out) >= fullOutput || !s.committer.tryWait(c.needs) || cap(c.out) > restingOutput && !c.tryCharge() {
		return false, nil
	}
	c.needs = 0
	if len(c.out) == 0 {
		return c.tryPush()
	}
	n, err := c.transmit(c.out)
	if err != nil || n < len(c.out) {
		c.out = c.out[n:]
		return false, err
	}
	c.out = c.out[:0]
	c.dropLarge()
	return c.tryPush()
}

// errNotDurable is returned instead of sending replies to writes that are not durable.
var errNotDurable = errors.New("resp: the writes are not durable yet")

// transmit writes to the connection; no other function does. The caller must have waited for
// needs.
func (c *client) transmit(b []byte) (n int, err error) {
	if c.needs != 0 {
		return 0, errNotDurable
	}
	n, err = c.conn.Write(b)
	c.server.counts.out.Add(uint64(n))
	return n, err
}

// dropLarge frees an empty buffer that is too large to keep, or for which the budget is too
// low.
func (c *client) dropLarge() {
	if cap(c.out) > keptOutput || cap(c.out) > restingOutput && c.server.replies.low() {
		c.out = nil
	}
	c.charge()
}

// tryCharge is charge without waiting. It reports whether the budget had the bytes.
func (c *client) tryCharge() bool {
	want, have := max(int64(cap(c.out)-restingOutput), 0), c.output.charged.Load()
	r := &c.server.replies
	switch {
	case want > have && !r.take(want-have):
		return false
	case want < have:
		r.give(have - want)
		r.wake()
	}
	c.output.charged.Store(want)
	return true
}

// tryChargeAlone is tryCharge, but if no other connection has any of the budget it takes more than that.
func (c *client) tryChargeAlone() bool {
	have, want := c.output.charged.Load(), int64(cap(c.out)-restingOutput)
	if want <= have {
		return c.tryCharge()
	}
	if !c.server.replies.raise(have, want) {
		return false
	}
	c.output.charged.Store(want)
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
			c.endAfter(0)
		}
	}
	_, err := c.transmit(b)
	if err != nil {
		if isTimeout(err) {
			c.server.counts.slow.Add(1)
		}
		c.server.opts.Logger.Debug("writing to client", "client", c.id, "err", err)
		c.endAfter(0)
	}
	return err == nil
}
