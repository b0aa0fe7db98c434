package resp

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/kv"
)

// A command such as BLPOP that finds no element waits. Its client registers a waiter while it
// still holds the locks of its keys, so no element can be added in between. Then its goroutine
// reads from the connection, as it would without the command, to notice that the client is gone.
//
// The client that adds an element serves the waiters of its key after the command, or after EXEC,
// and before its next command: the first waiter takes elements first, and other clients find what
// the waiters have left. The waiter's goroutine is interrupted by a read deadline in the past, as
// for messages (subscriber.go), and sends the reply.

// blocking holds the waiters of a server.
type blocking struct {
	waiting atomic.Int64 // number of waiters; while it is 0, batches are not examined

	mu      sync.Mutex           // guards the fields below, and the waiters' states
	served  *sync.Cond           // on mu: a waiter that was taken has its reply
	queues  map[string][]*waiter // by the record's key, in the order in which they are served
	clients map[int64]*waiter    // by the client's id
}

// waiter is a client that waits.
type waiter struct {
	client *client
	what   *popping
	until  time.Time // zero: for ever
	silent bool      // the reply is not sent (CLIENT REPLY)
	bytes  int64     // taken from the budget for large requests

	// Guarded by blocking.mu:
	state waiterState
	reply []byte // if the state is waiterDone
}

type waiterState uint8

const (
	waiterWaits waiterState = iota
	waiterTaken             // another client is about to serve it
	waiterDone              // it has its reply
	waiterAgain             // it has to look at its keys itself
	waiterLeft              // it has timed out, or its client is gone
)

func (b *blocking) init() {
	b.served = sync.NewCond(&b.mu)
	b.queues, b.clients = make(map[string][]*waiter), make(map[int64]*waiter)
}

// add registers a waiter.
func (b *blocking) add(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range w.what.names {
		key := string(storedKey(w.what.db, name))
		if q := b.queues[key]; len(q) == 0 || q[len(q)-1] != w { // a command may name a key twice
			b.queues[key] = append(q, w)
		}
	}
	b.clients[w.client.id] = w
	b.waiting.Add(1)
}

// end removes a waiter from the queues and sets its state. The caller must hold b.mu.
func (b *blocking) end(w *waiter, state waiterState) {
	w.state = state
	for _, name := range w.what.names {
		key := string(storedKey(w.what.db, name))
		q := b.queues[key]
		if i := slices.Index(q, w); i >= 0 {
			q = slices.Delete(q, i, i+1)
		}
		if b.queues[key] = q; len(q) == 0 {
			delete(b.queues, key)
		}
	}
	delete(b.clients, w.client.id)
	b.waiting.Add(-1)
}

// awaited reports whether a client waits for a record's key.
func (b *blocking) awaited(key []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queues[string(key)]) > 0
}

// first returns the first waiter for an element of a record's key, or nil.
func (b *blocking) first(key []byte, sorted bool) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.queues[string(key)] {
		if w.what.sorted == sorted {
			return w
		}
	}
	return nil
}

// take removes a waiter from the queues for the caller to serve it with finish. It returns false
// if the waiter does not wait any more.
func (b *blocking) take(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.state != waiterWaits {
		return false
	}
	b.end(w, waiterTaken)
	return true
}

// finish gives a waiter that was taken its reply.
func (b *blocking) finish(w *waiter, reply []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.state, w.reply = waiterDone, reply
	w.wake()
	b.served.Broadcast()
}

// wake interrupts the waiter's goroutine. The caller must hold blocking.mu.
func (w *waiter) wake() {
	if err := w.client.conn.SetReadDeadline(longAgo); err != nil { // the connection is ending
		w.client.server.opts.Logger.Debug("waking a client", "client", w.client.id, "err", err)
	}
}

// retry makes the waiters of a record's key look at their keys themselves.
func (b *blocking) retry(key []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range slices.Clone(b.queues[string(key)]) {
		b.end(w, waiterAgain)
		w.wake()
	}
}

// unblock ends the wait of a client with a reply, and reports whether it waited.
func (b *blocking) unblock(id int64, reply func(*popping) []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.clients[id]
	if w == nil {
		return false
	}
	b.end(w, waiterDone)
	w.reply = reply(w.what)
	w.wake()
	return true
}

// leave ends a wait, unless the waiter is being served or was.
func (b *blocking) leave(w *waiter) (left bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.state == waiterWaits {
		b.end(w, waiterLeft)
	}
	return w.state == waiterLeft
}

// depart is leave for a waiter whose connection ends. If the waiter is being served, it waits for that,
// and it reports whether there is a reply.
func (b *blocking) depart(w *waiter) (served bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.state == waiterWaits {
		b.end(w, waiterLeft)
	}
	for w.state == waiterTaken {
		b.served.Wait()
	}
	return w.state == waiterDone
}

// settled returns the state of a waiter that need not wait any more.
func (b *blocking) settled(w *waiter) (state waiterState, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return w.state, w.state > waiterTaken
}

// has reports whether a client waits.
func (b *blocking) has(id int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.clients[id] != nil
}

// block takes elements, or makes the client wait for them until the timeout.
func (c *client) block(p *popping, until time.Time) {
	c.withOpened(p.keys(p.names...), true, func() (reply []byte, refusal string) {
		reply, refusal = c.popFirst(p)
		switch {
		case reply != nil || refusal != "":
		case c.executing || c.locked:
			reply = p.none(nil)
		default:
			w := &waiter{client: c, what: p, until: until, silent: c.dropping, bytes: p.bytes()}
			if !c.server.large.take(w.bytes) {
				return nil, errMemory
			}
			c.waits = w
			c.server.blocking.add(w)
		}
		return reply, refusal
	})
}

// await waits until the command that blocks the client has its reply. It returns an error if the
// connection ends before. If another client has taken elements for this one by then, they are its reply.
func (c *client) await() error {
	w, b := c.waits, &c.server.blocking
	until := w.until
	for {
		if err := c.setReadDeadline(until); err != nil {
			return err
		}
		if state, ok := b.settled(w); ok {
			c.resumeFrom(w, state)
			return c.setReadDeadline(time.Time{})
		}
		if c.in.roomy() && len(c.in.ahead) == 0 {
			c.in.shrink()
		}
		err := c.receive()
		switch {
		case err == nil:
			c.server.counts.in.Add(uint64(c.in.last))
		case errors.Is(err, errMessages) && !c.quit:
			c.push() // quits if the client does not read
		case !isTimeout(err), c.server.closing.Load():
			if b.depart(w) {
				c.resumeFrom(w, waiterDone)
			}
			return err
		case !until.IsZero() && !time.Now().Before(until):
			until = time.Time{} // another client may be about to serve this one
			if b.leave(w) {
				w.reply = appendNullArray(nil, w.what.resp3)
			}
		}
	}
}

// endWait ends the wait of a client that is gone.
func (c *client) endWait() {
	if c.waits != nil {
		c.server.blocking.leave(c.waits)
		c.server.large.give(c.waits.bytes)
		c.waits = nil
	}
}

// resumeFrom continues after the wait.
func (c *client) resumeFrom(w *waiter, state waiterState) {
	c.waits = nil
	c.server.large.give(w.bytes)
	if state == waiterAgain {
		at := len(c.out)
		c.dropping = w.silent
		c.block(w.what, w.until)
		c.dropping = false
		if w.silent {
			c.out = c.out[:at]
		}
		return
	}
	c.holdReplies(len(c.out))
	if !w.silent {
		c.out = append(c.out, w.reply...)
	}
}

// noteReady notes the keys that the batch has changed and that clients wait for.
func (c *client) noteReady(w *worker) {
	for i := range w.ops {
		op := &w.ops[i]
		if op.Kind != kv.OpRead && op.Err == nil && (op.Kind != kv.OpRMW || w.mods[i].changed) {
			c.noteKey(op.Key)
		}
	}
}

// noteKey notes a record's key that has changed, if clients wait for it.
func (c *client) noteKey(key []byte) {
	if c.server.blocking.awaited(key) && !slices.ContainsFunc(c.ready, func(other []byte) bool { return bytes.Equal(other, key) }) {
		c.ready = append(c.ready, bytes.Clone(key))
	}
}

// isAwaited reports whether another client waits for a key of a command.
func (c *client) isAwaited(cmd *command, r request) bool {
	for key := range cmd.keys.of(r) {
		if c.server.blocking.awaited(storedKey(c.db, key)) {
			return true
		}
	}
	return false
}

// serveWaiters serves the clients that wait for keys that the client has changed. It holds no
// locks, and its batch is empty.
func (c *client) serveWaiters() {
	if len(c.ready) == 0 || c.serving || c.locked {
		return
	}
	c.serving = true
	tally, failed := c.tally, c.failed // of a command that goes on
	c.failed = nil
	for len(c.ready) > 0 {
		key := c.ready[0]
		c.ready = c.ready[1:]
		for _, sorted := range []bool{false, true} {
			for !c.quit && c.serveFirst(key, sorted) {
			}
		}
		if c.quit {
			c.server.blocking.retry(key)
		}
	}
	c.ready, c.serving = nil, false
	c.tally, c.failed = tally, failed
}

// serveFirst serves the first client that waits for an element of a record's key. It returns false
// if there is no client, or no element.
func (c *client) serveFirst(key []byte, sorted bool) (more bool) {
	b := &c.server.blocking
	w := b.first(key, sorted)
	if w == nil {
		return false
	}
	_, name := shownKey(key)
	var reply []byte
	taken := false
	c.borrow()
	err := c.opened(w.what.keys(name), true, func() error {
		if more = c.hasElement(key, sorted); !more {
			return nil
		}
		if taken = b.take(w); !taken {
			return nil
		}
		var refusal string
		if reply, refusal = c.popFrom(w.what, name); refusal != "" {
			return c.refuseOpened(refusal)
		}
		return nil
	})
	if failed := c.worker.session.Err(); failed != nil {
		c.abandon(failed)
	} else {
		c.tellNoted(err == nil, w.client)
	}
	switch {
	case errors.Is(err, errReplied):
		c.server.stats.addError(c.refusal)
		reply = appendError(nil, c.refusal)
	case err != nil:
		reply = appendError(nil, storeError(err))
	}
	switch {
	case taken:
		b.finish(w, reply)
	case err != nil: // such as of a key that a script has locked for long
		b.retry(key)
	}
	return more && !c.quit
}

// hasElement reports whether an open key holds a list or a sorted set.
func (c *client) hasElement(key []byte, sorted bool) bool {
	family := typeList
	if sorted {
		family = typeSorted
	}
	col := c.worker.collections.of(key)
	return col.exists() && col.typ.family() == family
}

// blockingPop returns BLPOP or one of its kin: keys, then the timeout.
func blockingPop(what popping) func(*client, request) {
	return func(c *client, r request) {
		until, refusal := c.timeout(r.arg(r.len() - 1))
		if refusal != "" {
			c.fail(refusal)
			return
		}
		var names [][]byte
		for i := 1; i < r.len()-1; i++ {
			names = append(names, r.arg(i))
		}
		c.block(what.of(c, names), until)
	}
}

func blmove(c *client, r request) {
	p, refusal := c.moving(r)
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.blockFor(p, r.arg(5))
}

func brpoplpush(c *client, r request) { c.blockFor(c.move(r, false, true), r.arg(3)) }

func blmpop(c *client, r request) { c.blockMany(r, false) }

func bzmpop(c *client, r request) { c.blockMany(r, true) }

func (c *client) blockMany(r request, sorted bool) {
	p, refusal := c.several(r, 2, sorted)
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.blockFor(p, r.arg(1))
}

// blockFor is block with the timeout as in the request.
func (c *client) blockFor(p *popping, timeout []byte) {
	until, refusal := c.timeout(timeout)
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.block(p, until)
}

// timeout returns the end of a timeout in seconds from now; 0 has none.
func (c *client) timeout(arg []byte) (until time.Time, refusal string) {
	seconds, ok := parseScore(arg)
	ms := math.Ceil(seconds * 1000)
	switch {
	case !ok:
		return time.Time{}, "ERR timeout is not a float or out of range"
	case ms < 0, ms >= math.MaxInt64: // Redis calls one that is too large negative as well
		return time.Time{}, "ERR timeout is negative"
	case ms == 0, ms > float64(longestWait/time.Millisecond):
		return time.Time{}, ""
	}
	return time.Now().Add(time.Duration(ms) * time.Millisecond), ""
}

// longestWait is the longest timeout; a longer one is as good as none.
const longestWait = 100 * 365 * 24 * time.Hour

// clientUnblock implements CLIENT UNBLOCK.
func clientUnblock(c *client, r request) {
	reply := func(p *popping) []byte { return appendNullArray(nil, p.resp3) } // as after a timeout
	switch {
	case r.len() == 4 && is(r.arg(3), "error"):
		reply = func(*popping) []byte { return appendError(nil, errUnblocked) }
	case r.len() == 4 && !is(r.arg(3), "timeout"):
		c.fail("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
		return
	}
	id, ok := parseInt(r.arg(2))
	if !ok {
		c.fail(errNotInteger)
		return
	}
	c.reply()
	n := int64(0)
	if c.server.blocking.unblock(id, reply) {
		n = 1
	}
	c.out = appendInt(c.out, n)
}
