package resp

import (
	"errors"

	"github.com/redykv/redykv/kv"
)

// replyKind is what the outcome of an operation becomes. Commands on many keys
// have one reply of many operations, which may lie in different batches.
type replyKind uint8

const (
	// Each the whole reply, of one operation.
	replyValue  replyKind = iota // the value that was read, or null
	replyLength                  // its length, or 0
	replyType                    // string or none
	replyOK                      // OK
	replyMod                     // what the modification says
	// Parts of a reply, of one operation.
	replyTally // counts a key that was found
	replyPart  // only failure matters
	replyLook  // tells the command itself whether the key was found
	replyTake  // the same, and keeps the value
	replyTaken // the value that was kept, now that it is removed
	// Without an operation.
	replyArray // announces the replies that follow, as elements
	replySum   // what was counted
	replyDone  // OK, if no part failed
)

type reply struct {
	kind replyKind
	n    int // replyArray: elements
}

// operation adds one to the batch, whose outcome becomes kind.
func (c *client) operation(kind replyKind) *kv.Op {
	if c.worker != nil && len(c.worker.ops) >= c.worker.limit {
		c.flush()
	}
	w := c.borrow()
	w.replies = append(w.replies, reply{kind: kind})
	n := len(w.ops)
	w.ops = w.ops[:n+1]
	return &w.ops[n]
}

// mark adds a reply without an operation, behind those of the batch.
func (c *client) mark(kind replyKind, n int) {
	w := c.borrow()
	w.replies = append(w.replies, reply{kind, n})
}

func (c *client) read(kind replyKind, key []byte) {
	op := c.operation(kind)
	op.Kind, op.Key, op.Value = kv.OpRead, key, c.worker.values[len(c.worker.ops)-1]
}

func (c *client) upsert(kind replyKind, key, value []byte) {
	c.wrote = true
	op := c.operation(kind)
	op.Kind, op.Key, op.Value = kv.OpUpsert, key, value
}

func (c *client) remove(kind replyKind, key []byte) {
	c.wrote = true
	op := c.operation(kind)
	op.Kind, op.Key = kv.OpDelete, key
}

// modify adds a read-modify-write. The caller fills in what is returned.
func (c *client) modify(kind modKind, key []byte) *modification {
	c.wrote = true
	op := c.operation(replyMod)
	slot := &c.worker.mods[len(c.worker.ops)-1]
	if *slot == nil {
		*slot = newModification()
	}
	m := *slot
	m.kind = kind
	op.Kind, op.Key, op.Modify = kv.OpRMW, key, m.call
	return m
}

func (c *client) borrow() *worker {
	if c.worker == nil {
		c.worker = c.server.pool.borrow()
	}
	return c.worker
}

// giveBack lets others have the worker, whose batch is empty, when there is room
// for its replies.
func (c *client) giveBack() {
	if c.worker != nil {
		if cap(c.out) > restingOutput {
			c.charge()
		}
		c.server.pool.giveBack(c.worker)
		c.worker = nil
	}
}

// flush carries out the batch and appends its replies.
func (c *client) flush() {
	w := c.worker
	if w == nil || len(w.replies) == 0 {
		return
	}
	if c.quit { // the client is gone: nobody was told that this would happen
		w.reset()
		return
	}
	if err := w.run(); err != nil {
		c.abandon(err)
		return
	}
	at := 0
	for _, r := range w.replies {
		if r.kind >= replyArray {
			c.conclude(r)
			continue
		}
		c.answer(r.kind, w, at)
		at++
	}
	w.reset()
	c.relieve()
}

// abandon ends the connection with its session: operations of the batch may be
// under way still, on the connection's buffers.
func (c *client) abandon(err error) {
	c.server.opts.Logger.Error("a session failed", "client", c.id, "err", err)
	c.out = appendError(c.out, "ERR "+err.Error())
	if err := c.server.pool.discard(c.worker); err != nil {
		c.server.opts.Logger.Error("closing a failed session", "err", err)
	}
	c.worker, c.quit = nil, true
}

// answer appends the reply, or notes the part of it, of one operation.
func (c *client) answer(kind replyKind, w *worker, at int) {
	op := &w.ops[at]
	found := op.Err == nil
	if op.Err != nil && !errors.Is(op.Err, kv.ErrNotFound) {
		switch {
		case kind < replyTally || kind == replyTaken:
			c.out = appendError(c.out, "ERR "+op.Err.Error())
		case c.failed == nil:
			c.failed = op.Err
		}
		return
	}
	switch kind {
	case replyValue:
		if found {
			c.out = appendBulk(c.out, op.Value)
		} else {
			c.out = appendNull(c.out, c.resp3)
		}
	case replyLength:
		n := 0
		if found {
			n = len(op.Value)
		}
		c.out = appendInt(c.out, int64(n))
	case replyType:
		if found {
			c.out = appendSimple(c.out, "string")
		} else {
			c.out = appendSimple(c.out, "none")
		}
	case replyOK:
		c.out = appendSimple(c.out, "OK")
	case replyMod:
		c.out = w.mods[at].appendReply(c.out, c.resp3)
	case replyTally:
		if found {
			c.tally++
		}
	case replyLook:
		c.found = found
	case replyTake:
		c.found = found
		c.taken, op.Value = op.Value, nil
	case replyTaken:
		c.out = appendBulk(c.out, c.taken)
		c.taken = nil
	}
}

// conclude appends a reply that needs no operation.
func (c *client) conclude(r reply) {
	switch {
	case r.kind == replyArray:
		c.out = appendArray(c.out, r.n)
		return
	case c.failed != nil:
		c.out = appendError(c.out, "ERR "+c.failed.Error())
	case r.kind == replySum:
		c.out = appendInt(c.out, c.tally)
	default:
		c.out = appendSimple(c.out, "OK")
	}
	c.tally, c.failed = 0, nil
}
