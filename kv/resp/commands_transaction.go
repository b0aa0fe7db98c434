package resp

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redykv/redykv/kv"
)

// MULTI queues commands. EXEC locks the keys that they name and the watched keys
// ([kv.Session.Atomically]), then runs them. If a command reads or changes more than the keys
// it names, such as SCAN, EXEC waits instead until no other connection runs commands, and
// blocks them until it has ended.

// transaction holds the commands queued since MULTI.
type transaction struct {
	queue  []queued
	bytes  int64
	whole  bool // a command reads or changes more than the keys that it names
	script bool // a command runs a script, which may come to other keys
	grows  bool // a command may need room in the store
	failed bool // a command was refused
}

// queued is a command with copies of its arguments.
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

// Bytes that a queued command and each of its arguments take besides their data.
const (
	queueCost = 64
	spanCost  = 8
)

// queue adds a command to the transaction.
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
	t.whole = t.whole || cmd.flags&flagWhole != 0 || c.server.wholeFor(cmd, r)
	t.script = t.script || cmd.flags&flagScript != 0
	t.grows = t.grows || c.grows(cmd)
	t.queue = append(t.queue, queued{cmd, request{append([]byte(nil), r.data...), append([]span(nil), r.args...)}})
	c.out = appendSimple(c.reply(), "QUEUED")
}

// endMulti removes the transaction from the client and returns it.
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
	t := c.multi
	if t == nil {
		c.fail(errExecAlone)
		return
	}
	c.multi = nil
	defer c.server.large.give(t.bytes)
	defer c.unwatch()
	c.reply()
	c.collect() // messages before the reply of EXEC, which must stay whole
	c.executing, c.transacting = true, true
	defer func() {
		c.executing, c.transacting = false, false
		c.collect() // its own messages before later replies
	}()
	if t.failed {
		c.fail(errExecAborted)
		return
	}
	var all [][]byte
	db := c.db
	for _, q := range t.queue {
		all, db = c.server.appendKeys(all, q, db)
	}
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
			if c.runQueued(q); c.quit { // the store has failed
				return
			}
			c.dropExcess()
		}
	}
	switch {
	case t.whole:
		c.exclusively(func() { c.wholly(run) })
	case len(all) == 0 && !t.script: // no key to lock, which would cost the other clients something
		c.borrow()
		c.lockOut()
		c.wholly(run)
		c.unlockOut()
		c.serveWaiters()
	default:
		c.atomically(all, run)
	}
}

// runQueued runs a command of the transaction, unless it may not run any more: since it was queued, the
// client's user, the rules of that, or the database may have changed.
func (c *client) runQueued(q queued) {
	refusal := c.refusalOf(q.cmd, q.r)
	if refusal == "" {
		c.run(q.cmd, q.r)
		return
	}
	switch {
	case refusal == errNoKeyPermission:
		refusal = errExecDenied + "no permission to touch the specified keys"
	case refusal == errNoChannel:
		refusal = errExecDenied + "no permission to access one of the channels used as arguments"
	case isDenial(refusal) && refusal != errNoAuth:
		refusal = errExecDenied + "no permission to execute the command or subcommand"
	}
	c.fail(refusal)
}

// appendKeys appends the records' keys that a command uses in a database, and returns the database
// of the next command.
func (s *Server) appendKeys(all [][]byte, q queued, db uint8) ([][]byte, uint8) {
	for key := range q.cmd.keys.of(q.r) {
		all = append(all, storedKey(db, key))
	}
	switch q.cmd.name {
	case "copy":
		if to, _, refusal := s.copyOptions(q.r, db); refusal == "" {
			all = append(all, storedKey(to, q.r.arg(2)))
		}
	case "move":
		if to, refusal := s.database(q.r.arg(2)); refusal == "" {
			all = append(all, storedKey(to, q.r.arg(1)))
		}
	case "select":
		if to, refusal := s.database(q.r.arg(1)); refusal == "" {
			db = to
		}
	}
	return all, db
}

// atomically calls do and flushes the batch while no other client reads or changes the records'
// keys. do may use no other keys. If the connection ends before, it does not call do. A client that has the
// store alone locks the keys too: compaction takes nodes for dead that are written before their header.
func (c *client) atomically(keys [][]byte, do func()) {
	if c.flush(); c.quit {
		return
	}
	w, within := c.borrow(), c.locked
	if within && !c.alone { // the transaction has locked the keys
		c.wholly(do)
		return
	}
	if !within {
		c.lockOut()
	}
	err := w.session.Atomically(context.Background(), keys, func() error {
		if !within {
			c.now = time.Now() // it may have waited
		}
		do()
		c.flush()
		return nil
	})
	if !within {
		c.unlockOut()
	}
	switch {
	case isBusy(err):
		c.fail(errBusy)
	case err != nil:
		c.abandon(err)
	}
	c.serveWaiters()
}

// wholly calls do and flushes the batch, so that every commit contains all that do changes or nothing.
func (c *client) wholly(do func()) {
	if err := c.worker.session.Whole(context.Background(), func() error { do(); c.flush(); return nil }); err != nil {
		c.abandon(err)
	}
}

// exclusively calls do while no other connection runs commands. If it would have to wait for a script
// that runs for long, it replies with an error instead. If the connection ends before, it does neither.
func (c *client) exclusively(do func()) {
	if !c.tryExclusively(do) {
		c.fail(errBusy)
	}
}

// tryExclusively is exclusively without a reply. It reports false if it would have to wait for a script.
func (c *client) tryExclusively(do func()) (done bool) {
	c.flush()
	if c.locked {
		do()
		c.flush()
		return true
	}
	if c.giveBack(); c.quit {
		return true
	}
	if c.worker = c.server.pool.seize(); c.worker == nil {
		return false
	}
	c.alone = true
	c.now = time.Now() // it may have waited
	c.lockOut()
	do()
	c.flush()
	c.server.pool.release()
	c.alone = false
	c.unlockOut()
	c.serveWaiters()
	return true
}

// watches detects changes of watched keys. While no key is watched, it costs a batch one load.
// Otherwise each change of a key is counted in the key's counter, when it begins and when it
// ends:
//
//	63..24   23..0
//	ended    begun and not ended
//
// A key has not changed since it was watched if, while its lock is held, its counter has the same
// value and no change was pending either time. Keys that share a counter may make a transaction
// fail without need; clients retry it anyway.
type watches struct {
	seed    maphash.Seed
	on      atomic.Bool // batches count changes; all that began since it was set do
	flushes atomic.Uint64

	turn     sync.Mutex // held by enter; locked before mu
	mu       sync.Mutex // guards the fields below, and changes of on
	watchers int
	counters atomic.Pointer[[watchCounters]atomic.Uint64] // nil until the first key is watched
	idle     *time.Timer                                  // calls rest
}

const (
	watchCounters = 1 << 20
	watchBegun    = 1<<24 - 1
	watchEnded    = 1 << 24
	// watchTime is how long changes are counted after the last watcher has left.
	watchTime = time.Second
)

func (w *watches) counter(key []byte) *atomic.Uint64 {
	return &w.counters.Load()[maphash.Bytes(w.seed, key)%watchCounters]
}

// begin must be called before a batch runs. It reports whether end must be called afterwards.
func (w *watches) begin(ops []kv.Op) bool {
	if !w.on.Load() {
		return false
	}
	for i := range ops {
		if ops[i].Kind != kv.OpRead {
			w.counter(ops[i].Key).Add(1)
		}
	}
	return true
}

// end must be called after the batch. mods are those of its read-modify-writes.
func (w *watches) end(ops []kv.Op, mods []*modification) {
	for i := range ops {
		op := &ops[i]
		switch {
		case op.Kind == kv.OpRead:
		case op.Kind == kv.OpRMW && op.Err == nil && !mods[i].changed:
			w.counter(op.Key).Add(^uint64(0))
		default:
			w.counter(op.Key).Add(watchEnded - 1)
		}
	}
}

// beginKeys is begin for records' keys that will be changed. It reports whether endKeys must be
// called afterwards.
func (w *watches) beginKeys(keys [][]byte) bool {
	if !w.on.Load() {
		return false
	}
	for _, key := range keys {
		w.counter(key).Add(1)
	}
	return true
}

func (w *watches) endKeys(keys [][]byte) {
	for _, key := range keys {
		w.counter(key).Add(watchEnded - 1)
	}
}

// changed counts a change of a record's key that no batch has made.
func (w *watches) changed(key []byte) {
	if w.on.Load() {
		w.counter(key).Add(watchEnded)
	}
}

// enter adds a watcher, which leave removes. If changes were not counted so far, it calls
// quiesce to wait for all batches that began before. The caller must have no batch of its own. If
// quiesce returns false, enter does too, and leave must not follow.
func (w *watches) enter(quiesce func() bool) bool {
	w.turn.Lock()
	defer w.turn.Unlock()
	if w.join() && !quiesce() {
		w.leave()
		w.rest()
		return false
	}
	return true
}

// join adds a watcher and reports whether changes were not counted so far.
func (w *watches) join() (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watchers++
	if w.on.Load() {
		return false
	}
	if w.counters.Load() == nil {
		w.counters.Store(new([watchCounters]atomic.Uint64))
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

// rest stops counting changes if there are no watchers.
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

// watchCost is the bytes that a watched key takes besides its data.
const watchCost = 64

// watched is a key that a client watches, and its state at that time.
type watched struct {
	key     []byte // the record's
	counter uint64
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
		if !c.server.watches.enter(c.server.pool.quiesce) {
			c.fail(errBusy)
			return
		}
		c.enlisted = true
	}
	for i := 1; i < r.len(); i++ {
		if err := c.watch(r.arg(i)); err != nil {
			c.fail(storeError(err))
			return
		}
	}
	c.out = appendSimple(c.reply(), "OK")
}

// watch adds a watched key. It loads the counter before it reads the key, so that any later
// change is detected.
func (c *client) watch(key []byte) error {
	size := int64(len(key) + watchCost)
	if !c.server.large.take(size) {
		return errTooMuchInput
	}
	c.watchBytes += size
	w := watched{key: append([]byte{}, storedKey(c.db, key)...)}
	w.counter = c.server.watches.counter(w.key).Load()
	w.flushes = c.server.watches.flushes.Load()
	op := []kv.Op{{Kind: kv.OpRead, Key: w.key}}
	session := c.borrow().session
	if err := absent(op, session.Do(context.Background(), op)); err != nil {
		if session.Err() != nil {
			c.abandon(err)
		}
		return err
	}
	w.existed, w.expires = op[0].Err == nil, op[0].Expires
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

// touched reports whether a watched key may have changed. The caller must hold the keys'
// locks.
func (c *client) touched() bool {
	for i := range c.watching {
		w := &c.watching[i]
		now := c.server.watches.counter(w.key).Load()
		switch {
		case now != w.counter || now&watchBegun != 0,
			w.existed && w.flushes != c.server.watches.flushes.Load(),
			w.existed && w.expires != 0 && w.expires <= time.Now().UnixMilli():
			return true
		}
	}
	return false
}
