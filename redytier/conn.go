package redytier

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redykv/redykv/internal/fabric"
	"github.com/redykv/redykv/internal/redywire"
)

// pollBatch is the number of completions per poll of a queue pair.
const pollBatch = 64

// conn is a session's connection to one endpoint, owned by the session's goroutine. Without a
// ring (b = 1) each request is one operation of the queue pair (R45). With a ring all
// requests travel in batches (R46), because a one-sided access could overtake a batch (A2).
type conn struct {
	session  *Session
	endpoint *endpoint
	qp       fabric.QueuePair
	early    fabric.Prefetcher // qp without a ring, if it can prefetch
	remotes  []fabric.Remote   // of the grant's regions, zero until imported; without a ring
	ring     *ring
	err      error  // cause of the connection's end
	dirty    bool   // requests wait for the doorbell
	listed   bool   // in Session.busy
	mark     uint64 // issued() at the session's last refresh

	// behind says that requests from before mark are pending, perhaps writes. The session sets it
	// before it enters a table's write epoch; other goroutines read it.
	behind atomic.Bool

	importing chan struct{} // holds a token while a goroutine of the cache imports a region

	// generation is the number of the session's connections to the grant that had failed
	// when this one was dialled. A server that accepts a connection has ended those of
	// earlier generations with their pending requests. So when one connection fails, all
	// others of its generation do, and no late write overtakes later requests.
	generation uint32

	// onesided holds the queue pair's pending operations in order, which is also the order
	// of completions. Requests are settled by it, so that each ends once however the
	// connection ends.
	onesided fifo[onesided]
}

// request is one access to one region.
type request struct {
	share
	write  bool
	buf    []byte
	remote fabric.Remote // one-sided: the region's handle
	index  uint32        // in messages: the region's number
	offset int64
}

// share is a request's share in an operation.
type share struct {
	op     uint32 // index of the operation
	mirror bool   // a write to a mirror: see region.mirror
	twin   *twin  // a write to a mirrored region, and to its mirror
}

type onesided struct {
	share
	n int
}

// issued and settled count requests, which are settled in the order of issue.
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

// passed reports whether all requests before a mark are settled.
func (c *conn) passed(mark uint64) bool { return c.err != nil || int64(c.settled()-mark) >= 0 }

// full reports whether issue would return false.
func (c *conn) full() bool {
	switch {
	case c.err != nil:
		return false
	case c.ring != nil:
		return c.ring.waiting.full()
	}
	return c.onesided.full()
}

// issue takes a request, or returns false if the connection is full. On a failed connection
// the request fails.
func (c *conn) issue(r request) bool {
	if c.err != nil {
		c.finish(r.share, len(r.buf), c.err)
		return true
	}
	if c.ring != nil {
		return c.issueRing(r)
	}
	if c.onesided.full() {
		return false
	}
	err := c.enqueue(r.share, r.write, r.buf, &r.remote, r.offset)
	switch {
	case err == nil:
	case errors.Is(err, fabric.ErrQueueFull):
		return false
	default:
		c.finish(r.share, len(r.buf), c.settle(err))
	}
	return true
}

// access is the fast path of issue for a request to a queue's region. If it returns false, it
// has done nothing, and issue handles the request.
func (c *conn) access(op uint32, write bool, buf []byte, q *regionQueue, offset int64) bool {
	switch {
	case c.err != nil:
		return false
	case c.ring == nil:
		return !c.onesided.full() && c.enqueue(share{op: op}, write, buf, &q.remote, offset) == nil
	case c.ring.waiting.full():
		return false
	}
	r := c.ring.waiting.add()
	r.share, r.write, r.buf, r.index, r.offset = share{op: op}, write, buf, q.index, offset
	c.waits()
	return true
}

// enqueue gives a request to the queue pair.
func (c *conn) enqueue(of share, write bool, buf []byte, remote *fabric.Remote, offset int64) error {
	var err error
	if write {
		err = c.qp.Write(buf, *remote, offset, uint64(of.op))
	} else {
		err = c.qp.Read(buf, *remote, offset, uint64(of.op))
	}
	if err == nil {
		c.onesided.push(onesided{share: of, n: len(buf)})
		if !c.dirty {
			c.soil()
		}
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

// waits sends the waiting requests if they fill a batch, or with the next doorbell.
func (c *conn) waits() {
	if !c.dirty {
		c.soil()
	}
	if c.ring.waiting.len() >= c.ring.batch {
		c.send()
	}
}

// soil notes that requests wait for the doorbell.
func (c *conn) soil() {
	c.dirty = true
	if !c.listed {
		c.listed = true
		c.session.busy = append(c.session.busy, c)
	}
}

// finish settles n bytes of an operation.
func (c *conn) finish(of share, n int, err error) {
	if err != nil && c.endpoint != nil { // else the region is lost
		err = c.afterFailure(of, err)
	}
	if of.twin != nil {
		of.twin.settle(n)
	}
	c.session.finish(of.op, n, err)
}

// afterFailure returns the error of an operation after a request has failed. A failed write drops
// the region's mirror, and those beside it: a mirror would lack the bytes, or would have them and show
// them when it takes the region's place. A failed write to a mirror does not fail the operation, unless
// the mirror has taken the region's place meanwhile, even if it has lost it again.
func (c *conn) afterFailure(of share, err error) error {
	cache, g := c.session.cache, c.endpoint.grant
	switch {
	case of.mirror:
		if cache.dropMirrors(onMirror(g)); !g.placed.Load() {
			return nil
		}
	case c.session.ops[of.op].write:
		cache.dropMirrors(func(r *region) bool { return r.endpoint != nil && r.endpoint.grant == g })
	}
	return err
}

// prefetch is called before the submits of other connections.
func (c *conn) prefetch() {
	if c.dirty && c.early != nil && c.err == nil {
		c.early.Prefetch()
	}
}

// submit starts all issued requests.
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

// busy reports whether requests are pending.
func (c *conn) busy() bool {
	if c.err != nil {
		return false
	}
	if c.ring != nil {
		return c.ring.busy()
	}
	return c.onesided.len() > 0
}

// poll handles the queue pair's completions and reports whether there were any.
func (c *conn) poll() bool {
	if !c.busy() {
		return false
	}
	done := &c.session.completion
	n := c.qp.Poll(done[:])
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
		c.takeRing(done[:n])
	} else {
		c.takeOneSided(done[:n])
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
				return // settled with the others
			}
		}
		o := c.onesided.pop()
		c.finish(o.share, o.n, err)
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

// settle turns an error of the queue pair into that of a request. It ends the connection if
// the peer is gone or has taken its memory back, which some fabrics report first.
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

// fail ends the connection: pending requests fail, and the cache checks whether the server is
// alive. The queue pair is closed first, so that it does not access buffers that are returned
// to their owners.
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
		c.finish(o.share, o.n, c.err)
	}
	if c.ring != nil {
		c.ring.abandon(c)
	}
	c.session.recheck(c)
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

// close releases the queue pair and the rings. No request is pending.
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
