package resp

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/kv"
)

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
	err := w.session.Atomically(context.Background(), stored, func() error {
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

// watches find out whether a key was changed since it was watched. While nobody
// watches anything, they cost a batch one load. Else each change of a key goes
// through the key's slot: it is begun there before it has its effect, and ended
// afterwards.
//
//	63..24   23..0
//	ended    begun and not ended
//
// A key was not changed since it was watched if its slot is the same, with
// nothing going on either time, while its lock is held. Keys that share a slot
// may make a transaction fail for nothing, which is to be tried again anyway.
type watches struct {
	seed    maphash.Seed
	on      atomic.Bool // batches look at slots: all that began since it was set
	flushes atomic.Uint64

	turn     sync.Mutex // one enter at a time; taken before mu
	mu       sync.Mutex // guards what follows, and changes of on
	watchers int
	slots    atomic.Pointer[[watchSlots]atomic.Uint64] // nil until the first one
	idle     *time.Timer
}

const (
	watchSlots = 1 << 20
	watchBegun = 1<<24 - 1
	watchEnded = 1 << 24
	// watchTime is how long slots are looked at after the last watcher has gone.
	watchTime = time.Second
)

func (w *watches) slot(key []byte) *atomic.Uint64 {
	return &w.slots.Load()[maphash.Bytes(w.seed, key)%watchSlots]
}

// begin is called before a batch is carried out, and says whether end is to be
// called after it.
func (w *watches) begin(ops []kv.Op) bool {
	if !w.on.Load() {
		return false
	}
	for i := range ops {
		if ops[i].Kind != kv.OpRead {
			w.slot(ops[i].Key).Add(1)
		}
	}
	return true
}

func (w *watches) end(of *worker) {
	for i := range of.ops {
		op := &of.ops[i]
		switch {
		case op.Kind == kv.OpRead:
		case op.Kind == kv.OpRMW && op.Err == nil && !of.mods[i].changed:
			w.slot(op.Key).Add(^uint64(0))
		default:
			w.slot(op.Key).Add(watchEnded - 1)
		}
	}
}

// enter has slots looked at until as many have left. quiesce waits until all
// batches have ended that did not look; the caller has none.
func (w *watches) enter(quiesce func()) {
	w.turn.Lock()
	defer w.turn.Unlock()
	if w.join() {
		quiesce()
	}
}

// join says whether slots were not looked at so far.
func (w *watches) join() (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watchers++
	if w.on.Load() {
		return false
	}
	if w.slots.Load() == nil {
		w.slots.Store(new([watchSlots]atomic.Uint64))
	}
	w.on.Store(true)
	return true
}

func (w *watches) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watchers--; w.watchers > 0 {
		return
	}
	if w.idle == nil {
		w.idle = time.AfterFunc(watchTime, w.rest)
	} else {
		w.idle.Reset(watchTime)
	}
}

// rest ends the looking, if nobody watches.
func (w *watches) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watchers == 0 {
		w.on.Store(false)
	}
}

func (w *watches) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle != nil {
		w.idle.Stop()
	}
}

// watchCost is what a watched key takes beside its bytes.
const watchCost = 64

// watched is a key that a client watches, and what was seen of it.
type watched struct {
	key     []byte
	slot    uint64
	flushes uint64
	existed bool
	expires int64 // milliseconds of Unix time, 0: never
}

func watchKeys(c *client, r request) {
	if c.multi != nil {
		c.fail(errWatchInMulti)
		return
	}
	c.flush()
	c.giveBack()
	if !c.enlisted {
		c.server.watches.enter(c.server.pool.quiesce)
		c.enlisted = true
	}
	for i := 1; i < r.len(); i++ {
		if err := c.watch(r.arg(i)); err != nil {
			c.fail("ERR " + err.Error())
			return
		}
	}
	c.out = appendSimple(c.reply(), "OK")
}

// watch notes a key. The slot is looked at first: what changes the key after it
// is found out.
func (c *client) watch(key []byte) error {
	size := int64(len(key) + watchCost)
	if !c.server.large.take(size) {
		return errTooMuchInput
	}
	c.watchBytes += size
	w := watched{key: append([]byte{}, key...)}
	stored := storedKey(w.key)
	w.slot = c.server.watches.slot(stored).Load()
	w.flushes = c.server.watches.flushes.Load()
	op := kv.Op{Kind: kv.OpRead, Key: stored}
	session := c.borrow().session
	if err := session.Run(&op); err != nil && !errors.Is(err, kv.ErrNotFound) {
		if session.Err() != nil {
			c.abandon(err)
		}
		return err
	}
	w.existed, w.expires = op.Err == nil, op.Expires
	c.watching = append(c.watching, w)
	return nil
}

func unwatch(c *client, _ request) {
	c.unwatch()
	c.out = appendSimple(c.reply(), "OK")
}

func (c *client) unwatch() {
	if !c.enlisted {
		return
	}
	c.server.large.give(c.watchBytes)
	c.watching, c.watchBytes, c.enlisted = nil, 0, false
	c.server.watches.leave()
}

// touched says whether a watched key may have been changed. The client holds
// their locks.
func (c *client) touched() bool {
	for i := range c.watching {
		w := &c.watching[i]
		now := c.server.watches.slot(storedKey(w.key)).Load()
		switch {
		case now != w.slot || now&watchBegun != 0,
			w.existed && w.flushes != c.server.watches.flushes.Load(),
			w.existed && w.expires != 0 && w.expires <= time.Now().UnixMilli():
			return true
		}
	}
	return false
}
