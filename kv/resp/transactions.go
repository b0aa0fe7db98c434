package resp

// MULTI queues commands; EXEC locks all keys that they name and that are watched
// ([kv.Session.Atomically]) and carries them out. A command among them that looks
// at more than the keys it names, such as SCAN, has no lock to go by: then EXEC
// waits until no other connection carries anything out, and keeps it so.

// transaction is what a client has queued since MULTI.
type transaction struct {
	queue  []queued
	bytes  int64
	whole  bool // one of them looks at more than its keys
	failed bool // one of them was refused
}

// queued is a command with arguments of its own.
type queued struct {
	cmd *command
	r   request
}

func multi(c *client, _ request) {
	if c.multi != nil {
		c.fail(errNestedMulti)
		return
	}
	c.multi = new(transaction)
	c.out = appendSimple(c.reply(), "OK")
}

// queueCost is what a queued command takes beside its bytes, and an argument.
const (
	queueCost = 64
	spanCost  = 8
)

// queue keeps a command for EXEC.
func (c *client) queue(cmd *command, r request) {
	t := c.multi
	size := int64(len(r.data) + queueCost + spanCost*r.len())
	switch {
	case cmd.flags&flagNoMulti != 0:
		c.refuse(cmd, r, errNoMulti)
		return
	case t.bytes+size > int64(c.server.opts.MaxRequest) || !c.server.large.take(size):
		c.refuse(cmd, r, errTooLarge)
		return
	}
	t.bytes += size
	t.whole = t.whole || cmd.flags&flagWhole != 0
	t.queue = append(t.queue, queued{cmd, request{append([]byte(nil), r.data...), append([]span(nil), r.args...)}})
	c.out = appendSimple(c.reply(), "QUEUED")
}

// endMulti takes the transaction from the client.
func (c *client) endMulti() *transaction {
	t := c.multi
	if c.multi = nil; t != nil {
		c.server.large.give(t.bytes)
	}
	return t
}

func discard(c *client, _ request) {
	if c.endMulti() == nil {
		c.fail(errDiscardAlone)
		return
	}
	c.unwatch()
	c.out = appendSimple(c.reply(), "OK")
}

func carryOut(c *client, _ request) {
	t := c.endMulti()
	if t == nil {
		c.fail(errExecAlone)
		return
	}
	defer c.unwatch()
	if t.failed {
		c.fail(errExecAborted)
		return
	}
	all := t.keys()
	for _, w := range c.watching {
		all = append(all, w.key)
	}
	run := func() {
		if c.touched() {
			c.out = appendNullArray(c.reply(), c.resp3)
			return
		}
		c.out = appendArray(c.reply(), len(t.queue))
		for _, q := range t.queue {
			if c.run(q.cmd, q.r); c.quit {
				return
			}
		}
	}
	if t.whole {
		c.exclusively(run)
	} else {
		c.atomically(all, run)
	}
}

// keys are those that the commands name.
func (t *transaction) keys() (all [][]byte) {
	for _, q := range t.queue {
		q.cmd.keys.keysOf(q.r, func(key []byte) bool {
			all = append(all, key)
			return true
		})
	}
	return all
}

// atomically calls do, which queues commands on these keys only, or carries them
// out, while no other client reads or changes one of them.
func (c *client) atomically(keys [][]byte, do func()) {
	c.flush()
	if c.locked || len(keys) == 0 {
		do()
		c.flush()
		return
	}
	stored := make([][]byte, len(keys))
	for i, key := range keys {
		stored[i] = storedKey(key)
	}
	w := c.borrow()
	c.locked, c.lockedAt = true, len(c.out)
	err := w.session.Atomically(stored, func() error {
		do()
		c.flush()
		return nil
	})
	c.locked = false
	if err != nil {
		c.abandon(err)
	}
}

// exclusively calls do while no other connection carries anything out.
func (c *client) exclusively(do func()) {
	c.flush()
	if c.locked {
		do()
		c.flush()
		return
	}
	c.giveBack()
	c.worker = c.server.pool.seize()
	c.locked, c.lockedAt = true, len(c.out)
	do()
	c.flush()
	c.server.pool.release()
	c.locked = false
}
