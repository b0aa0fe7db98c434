package redytier

import (
	"errors"
	"fmt"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// pollBatch is how many completions a connection takes from its queue pair at
// once.
const pollBatch = 64

// conn is a session's connection over one endpoint, owned by the session's goroutine.
// Without a ring (b = 1) each request is one operation of the queue pair (R45);
// with one, requests travel in batches (R46), and all of them do, for a
// one-sided access could overtake a batch that waits for its server (A2).
type conn struct {
	session  *Session
	endpoint *endpoint
	qp       fabric.QueuePair
	early    fabric.Prefetcher // of qp, if it is one and there is no ring
	remotes  []fabric.Remote   // of the grant's regions; without a ring
	ring     *ring
	err      error // why the connection is gone; it is not used any more then
	dirty    bool  // something waits for the doorbell

	// leaving says that the table has no such endpoint any more: the connection is
	// closed when it owes nothing. mark is what it had issued when the session last
	// took notice of a new table.
	leaving bool
	mark    uint64

	// generation is how many connections of the session to the grant had failed when
	// this one was dialled. A server that accepts a connection has ended those of
	// earlier generations, whatever they had under way: so when one fails, all others
	// of its generation do, over whatever endpoint, and what is asked for afterwards goes
	// over connections that no late write can overtake.
	generation uint32

	// onesided holds what the queue pair has under way, in order, which is also
	// the order of completions. It and not the queue pair settles requests, so
	// that each ends once however the connection does.
	onesided fifo[onesided]
	done     [pollBatch]fabric.Completion
}

// request is one access to one region.
type request struct {
	op     uint32 // slot of the operation
	write  bool
	mirror bool // its outcome is nobody's: see region.mirror
	buf    []byte
	remote fabric.Remote // of the region, one-sided,
	index  uint32        // and its number, in messages
	offset int64
}

type onesided struct {
	op     uint32
	mirror bool
	n      int
}

// issued and settled count requests. What was issued before is settled before.
func (c *conn) issued() uint64 {
	if c.ring != nil {
		return c.ring.waiting.tail
	}
	return c.onesided.tail
}

func (c *conn) settled() uint64 {
	if c.ring != nil {
		return c.ring.settled
	}
	return c.onesided.head
}

// passed says whether everything issued before a mark is settled.
func (c *conn) passed(mark uint64) bool { return c.err != nil || int64(c.settled()-mark) >= 0 }

// full says that issue would return false.
func (c *conn) full() bool {
	switch {
	case c.err != nil:
		return false
	case c.ring != nil:
		return c.ring.waiting.full()
	}
	return c.onesided.full()
}

// issue takes a request, or returns false if the connection is full. On a dead
// connection the request fails.
func (c *conn) issue(r request) bool {
	if c.err != nil {
		c.finish(r.op, r.mirror, len(r.buf), c.err)
		return true
	}
	if c.ring != nil {
		return c.issueRing(r)
	}
	if c.onesided.full() {
		return false
	}
	err := c.enqueue(r.op, r.mirror, r.write, r.buf, &r.remote, r.offset)
	switch {
	case err == nil:
	case errors.Is(err, fabric.ErrQueueFull):
		return false
	default:
		c.finish(r.op, r.mirror, len(r.buf), c.settle(err))
	}
	return true
}

// access is issue for a request to a regionQueue's region, or returns false and has done
// nothing: then issue finds out why.
func (c *conn) access(op uint32, write bool, buf []byte, q *regionQueue, offset int64) bool {
	switch {
	case c.err != nil:
		return false
	case c.ring == nil:
		return !c.onesided.full() && c.enqueue(op, false, write, buf, &q.remote, offset) == nil
	case c.ring.waiting.full():
		return false
	}
	r := c.ring.waiting.add()
	r.op, r.write, r.mirror, r.buf, r.index, r.offset = op, write, false, buf, q.index, offset
	c.waits()
	return true
}

// enqueue hands a request to the queue pair, if that takes it.
func (c *conn) enqueue(op uint32, mirror, write bool, buf []byte, remote *fabric.Remote, offset int64) error {
	var err error
	if write {
		err = c.qp.Write(buf, *remote, offset, uint64(op))
	} else {
		err = c.qp.Read(buf, *remote, offset, uint64(op))
	}
	if err == nil {
		c.onesided.push(onesided{op: op, mirror: mirror, n: len(buf)})
		c.dirty = true
	}
	return err
}

func (c *conn) issueRing(r request) bool {
	if c.ring.waiting.full() {
		return false
	}
	c.ring.waiting.push(r)
	c.waits()
	return true
}

// waits has a request that waits for the ring sent with the next doorbell, or with
// its batch if that is full.
func (c *conn) waits() {
	c.dirty = true
	if c.ring.waiting.len() >= c.ring.batch {
		c.send()
	}
}

// finish settles n bytes of an operation. A mirrored write that fails loses the
// mirror, and nothing of the operation's.
func (c *conn) finish(op uint32, mirror bool, n int, err error) {
	if mirror && err != nil {
		c.session.cache.lose(c.endpoint.grant, err)
		err = nil
	}
	c.session.finish(op, n, err)
}

// prefetch is called where others' submits come before this one's.
func (c *conn) prefetch() {
	if c.dirty && c.early != nil && c.err == nil {
		c.early.Prefetch()
	}
}

// submit starts everything issued.
func (c *conn) submit() {
	if !c.dirty || c.err != nil {
		return
	}
	c.dirty = false
	if c.ring != nil {
		c.ring.submitted = c.ring.waiting.tail
		c.send()
		return
	}
	if err := c.qp.Submit(); err != nil {
		c.fail(err)
	}
}

// send moves waiting requests into free slots of the ring.
func (c *conn) send() {
	n, err := c.ring.send(c.qp, c.session.cache.beat.Load())
	if err != nil {
		c.fail(err)
		return
	}
	if n > 0 {
		c.session.counts.batches.add(uint64(n))
	}
}

// busy says whether the connection owes completions.
func (c *conn) busy() bool {
	if c.err != nil {
		return false
	}
	if c.ring != nil {
		return c.ring.busy()
	}
	return c.onesided.len() > 0
}

// poll takes in what the queue pair has to say and reports whether that was
// anything.
func (c *conn) poll() bool {
	if !c.busy() {
		return false
	}
	n := c.qp.Poll(c.done[:])
	if n == 0 {
		if err := c.qp.Err(); err != nil {
			c.fail(err)
			return true
		}
		if c.ring != nil && c.ring.silent(c.session.cache.beat.Load()) {
			c.fail(errNoAnswer)
			return true
		}
		return false
	}
	if c.ring != nil {
		c.takeRing(c.done[:n])
	} else {
		c.takeOneSided(c.done[:n])
	}
	return true
}

func (c *conn) takeOneSided(done []fabric.Completion) {
	for i := range done {
		err := done[i].Err
		if done[i].Op == fabric.OpRecv {
			c.fail(fmt.Errorf("%w: notification on a connection without rings", redywire.ErrMalformed))
			return
		}
		if err != nil {
			if err = c.settle(err); c.err != nil {
				return // this one was settled with the others
			}
		}
		o := c.onesided.pop()
		c.finish(o.op, o.mirror, o.n, err)
	}
}

func (c *conn) takeRing(done []fabric.Completion) {
	for i := range done {
		if err := c.ring.take(done[i], c); err != nil {
			c.fail(err)
			return
		}
	}
	c.send() // slots may have come free
}

// settle turns an error of the queue pair into that of a request. It ends the
// connection if the peer is gone, or has taken its memory back: on some fabrics
// that is seen first.
func (c *conn) settle(err error) error {
	if errors.Is(err, fabric.ErrDisconnected) || errors.Is(err, fabric.ErrClosed) || errors.Is(err, fabric.ErrBadToken) {
		c.fail(err)
		return c.err
	}
	return c.unavailable(err)
}

func (c *conn) unavailable(err error) error { return unavailable(c.endpoint.grant, err) }

func unavailable(g *grant, err error) error {
	return fmt.Errorf("%w: VM %s: %w", ErrRegionUnavailable, g.vm, err)
}

// fail ends the connection: everything under way fails, and the cache finds out
// whether the server is still there. The queue pair is closed first, so that
// nothing touches the buffers any more when their owners get them back.
func (c *conn) fail(cause error) {
	if c.err != nil {
		return
	}
	cache := c.session.cache
	if cache.deleted.Load() {
		c.err = ErrDeleted
	} else {
		c.err = c.unavailable(cause)
		cache.connFailed(c, cause)
	}
	if err := c.qp.Close(); err != nil {
		cache.log.Warn("closing a failed connection", "vm", c.endpoint.grant.vm, "err", err)
	}
	for c.onesided.len() > 0 {
		o := c.onesided.pop()
		c.finish(o.op, o.mirror, o.n, c.err)
	}
	if c.ring != nil {
		c.ring.abandon(c)
	}
	if c.session.waits.Load() {
		for i := range c.session.queues {
			if q := &c.session.queues[i]; q.conn == c {
				q.holdAll()
			}
		}
	}
	for _, other := range c.session.conns {
		if other.endpoint.grant == c.endpoint.grant && other.generation == c.generation {
			other.fail(cause)
		}
	}
}

// close releases the queue pair and the rings. Nothing is under way.
func (c *conn) close() error {
	var err error
	if c.qp != nil && c.err == nil {
		err = c.qp.Close()
		c.err = fabric.ErrClosed
	}
	if c.ring != nil {
		err = errors.Join(err, c.ring.close())
	}
	return err
}
