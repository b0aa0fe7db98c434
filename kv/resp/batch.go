package resp

import (
	"bytes"
	"context"
	"errors"

	"github.com/redykv/redykv/kv"
)

// replyKind says how the outcome of an operation becomes a reply. A command on many keys has
// one reply for many operations, which may lie in different batches.
type replyKind uint8

const (
	// Complete replies, each of one operation.
	replyValue    replyKind = iota // the string read, or null
	replyString                    // the same, but null for a value that is no string
	replyLength                    // the string's length, or 0
	replyRange                     // the string's bytes from n to m
	replyType                      // the type of the value read
	replyEncoding                  // its encoding in Redis, or null
	replyRefcount                  // 1, or null
	replyIdle                      // 0, or null
	replyFreq                      // Redis's refusal, or null
	replyUsage                     // the bytes that the record takes, or null
	replyDump                      // what RESTORE takes, or null
	replyTTL                       // in units of n milliseconds; m: absolute
	replyElements                  // the result of the reply's function for the hash or set
	replyList                      // that for the list
	replySorted                    // that for the sorted set
	replyText                      // that for the string
	replyOK                        // OK
	replyMod                       // the modification's reply
	// Parts of a reply, each of one operation.
	replyTally    // counts a key that exists
	replyTallyMod // counts a key that was changed
	replyPart     // records failure only
	replyTake     // keeps the value read for the command
	// Replies without an operation.
	replyArray // the head of an array of the n replies that follow
	replySum   // the count of the parts
	replyDone  // OK if no part failed
	replyOne   // 1 if no part failed
)

type reply struct {
	kind replyKind
	n, m int64
	// For replyElements: the function that makes the reply, its arguments, the number of these that
	// are fields to be looked up, and the type that the key must have.
	elements elementsReply
	args     [][]byte
	looks    int
	family   valueType
	// For replyList or replySorted: the function, which has args too.
	onList   listCall
	onSorted sortedCall
	// For replyText: the function that appends the reply. s is empty if the key does not exist.
	text func(c *client, r *reply, s []byte, found bool)
}

// room makes room for an operation in the batch.
func (c *client) room() *worker {
	if c.worker != nil && len(c.worker.ops) >= c.worker.limit {
		c.flush()
	}
	return c.borrow()
}

// parts prepares a command of n operations that has one reply after all of them. It sends earlier replies
// that would otherwise be sent between two of the operations: if the client does not read them, the
// connection ends before the command and not in the middle. Then parts returns false.
func (c *client) parts(n int) (ok bool) {
	if w := c.room(); len(w.ops)+n > w.limit {
		c.flush()
	}
	return !c.quit
}

// key returns the record's key for a key of the client's database. It is valid until the batch
// has run, to which the next operation is added.
func (c *client) key(key []byte) []byte {
	if c.db == 0 {
		return storedKey(0, key)
	}
	w := c.room()
	from := len(w.keys)
	w.keys = appendKey(w.keys, c.db, key) // if it grows, earlier keys remain in the old memory
	return w.keys[from:len(w.keys):len(w.keys)]
}

// operation adds an operation to the batch, whose reply is of the given kind.
func (c *client) operation(kind replyKind) (*kv.Op, *reply) {
	w := c.room()
	w.replies = append(w.replies, reply{kind: kind})
	n := len(w.ops)
	w.ops = w.ops[:n+1]
	w.by[n] = c.running
	return &w.ops[n], &w.replies[len(w.replies)-1]
}

// mark adds a reply without an operation to the batch.
func (c *client) mark(kind replyKind, n int) {
	w := c.borrow()
	w.replies = append(w.replies, reply{kind: kind, n: int64(n)})
}

func (c *client) read(kind replyKind, key []byte) *reply { return c.readRecord(kind, c.key(key)) }

// readRecord is read for a record's key.
func (c *client) readRecord(kind replyKind, key []byte) *reply {
	op, rp := c.operation(kind)
	op.Kind, op.Key, op.Value = kv.OpRead, key, c.worker.values[len(c.worker.ops)-1]
	return rp
}

// upsert sets the key to a string.
func (c *client) upsert(kind replyKind, key, value []byte, expires int64) {
	c.upsertRecord(kind, c.key(key), storedString(value), expires)
}

// upsertRecord sets a record's key to a record's value.
func (c *client) upsertRecord(kind replyKind, key, value []byte, expires int64) {
	key = c.writable(key)
	// An upsert must not take effect before an operation that is deferred.
	if c.room().defers || c.server.changes.looksBack() {
		m := c.modifyRecord(kind, key, changeUpsert, nil)
		m.arg, m.expires = value, expires
		return
	}
	op, _ := c.operation(kind)
	op.Kind, op.Key, op.Value, op.Expires = kv.OpUpsert, key, value, expires
}

// writable returns a record's key to be changed. It first runs the batch if that reads a collection
// there: if the collection is spread, its nodes are read when the batch has run.
func (c *client) writable(key []byte) []byte {
	if w := c.worker; w == nil || !w.mayRead(key) {
		return key
	}
	key = bytes.Clone(key) // it may lie in the batch's memory
	c.flush()
	return key
}

// modify adds a read-modify-write with its reply. The caller fills in the other fields of the
// modification.
func (c *client) modify(key []byte, change func(*modification) kv.Verdict, reply func(*modification, []byte, bool) []byte) *modification {
	return c.modifyRecord(replyMod, c.key(key), change, reply)
}

// modifyRecord is modify for a record's key, with a reply of the given kind.
func (c *client) modifyRecord(kind replyKind, key []byte, change func(*modification) kv.Verdict, reply func(*modification, []byte, bool) []byte) *modification {
	key = c.writable(key)
	op, _ := c.operation(kind)
	at := len(c.worker.ops) - 1
	if c.worker.mods[at] == nil {
		c.worker.mods[at] = newModification(c.worker)
	}
	m := c.worker.mods[at]
	m.change, m.reply, m.only, m.flags, m.delta, m.expires, m.bad = change, reply, typeNone, 0, 0, 0, ""
	m.collects, m.deferred, m.late, m.quiet, m.event = false, false, false, false, ""
	op.Kind, op.Key, op.Modify = kv.OpRMW, key, m.call
	return m
}

// keep returns the arguments of r from the i-th on. They are valid until the batch has run.
func (c *client) keep(r request, i int) [][]byte {
	w := c.worker
	from := len(w.operands)
	for ; i < r.len(); i++ {
		w.operands = append(w.operands, r.arg(i))
	}
	return w.operands[from:len(w.operands):len(w.operands)]
}

func (c *client) borrow() *worker {
	if c.worker == nil {
		c.worker = c.server.pool.borrow()
	}
	return c.worker
}

// giveBack returns the worker, whose batch is empty, to the pool, and charges the budget for
// its replies. It waits until the budget has room.
func (c *client) giveBack() {
	w := c.worker
	if w == nil || c.locked {
		return
	}
	if cap(c.out) > restingOutput && c.loop == nil {
		c.charge()
	}
	c.worker = nil
	if err := c.server.pool.giveBack(w); err != nil {
		c.server.opts.Logger.Error("closing a failed session", "err", err)
	}
}

// flush runs the batch and appends its replies.
func (c *client) flush() {
	w := c.worker
	if w == nil || len(w.replies) == 0 {
		return
	}
	if c.quit { // The connection is closed: the operations were not acknowledged.
		w.reset()
		return
	}
	var err error
	if w.defers {
		err = w.session.Whole(context.Background(), c.runBatch)
	} else {
		err = c.runBatch()
	}
	if w.changes() {
		if c.firstWrite < 0 { // the session has failed
			c.firstWrite = len(c.out)
		}
		c.holdReplies(c.firstWrite)
		if c.server.blocking.waiting.Load() > 0 {
			c.noteReady(w)
		}
	}
	if err != nil {
		c.abandon(err)
		c.serveWaiters()
		return
	}
	if c.server.opts.Cache != nil {
		c.server.opts.Cache.noteUses(w)
	}
	if c.server.changes.on.Load() {
		c.noteChanges(w)
	}
	w.reset()
	c.dropExcess()
	c.serveWaiters()
	c.sendIfLarge()
}

// runBatch runs the batch and the operations that it defers, and appends the replies. It returns the
// error of a failed session.
func (c *client) runBatch() error {
	w := c.worker
	c.firstWrite = -1
	watched := c.server.watches.begin(w.ops)
	err := w.run()
	if watched {
		c.server.watches.end(w.ops, w.mods[:])
	}
	if err != nil {
		return err
	}
	first := w.firstDeferred()
	for i, at := 0, 0; i < len(w.replies) && w.session.Err() == nil; {
		r := &w.replies[i]
		if r.kind >= replyArray {
			c.conclude(r)
			i++
			continue
		}
		n := w.groupAt(i, at, first)
		if n == 0 && (w.isDeferred(at) || w.isStale(at, first)) {
			c.again(at)
			n = min(w.groupAt(i, at, first), 1)
		}
		if n > 0 {
			c.runGroup(i, at, n)
		} else {
			c.noteWrite(&w.ops[at])
			c.answer(r, w, at)
			n = 1
		}
		i, at = i+n, at+n
	}
	return w.session.Err()
}

// abandon ends the connection after its session failed. The outcome of the batch's operations
// is unknown, so only earlier replies are sent.
func (c *client) abandon(err error) {
	c.server.opts.Logger.Error("a session failed", "client", c.id, "err", err)
	c.endAfter(len(c.out))
	c.worker.drop()
}

// answer appends the reply of one operation, or records its part of a reply.
func (c *client) answer(r *reply, w *worker, at int) {
	op := &w.ops[at]
	found := op.Err == nil
	if op.Err != nil && !errors.Is(op.Err, kv.ErrNotFound) {
		if r.kind < replyTally {
			c.error(storeError(op.Err))
		} else if c.failed == nil {
			c.failed = op.Err
		}
		return
	}
	if r.kind == replyOK {
		c.out = appendSimple(c.out, "OK")
		return
	}
	if op.Kind == kv.OpRead {
		if found {
			c.hits++
		} else {
			c.misses++
		}
	}
	switch r.kind {
	case replyMod:
		if m := w.mods[at]; m.refused != "" {
			c.error(m.refused)
		} else {
			c.out = m.reply(m, c.out, c.resp3)
		}
	case replyTally:
		if found {
			c.tally++
		}
	case replyTallyMod:
		if w.mods[at].changed {
			c.tally++
		}
	case replyPart:
	case replyTake:
		c.found, c.takenExpires = found, op.Expires
		c.taken, op.Value = op.Value, nil
	default:
		c.answerRead(r, op, found)
	}
}

// answerRead appends the reply of an operation that read a record.
func (c *client) answerRead(r *reply, op *kv.Op, found bool) {
	switch {
	case r.kind == replyElements:
		c.answerElements(r, op, found)
	case r.kind == replyList, r.kind == replySorted:
		c.answerCall(r, op, found)
	case r.kind == replyText && found:
		if s, ok := stringOf(op.Value); ok {
			r.text(c, r, s, true)
		} else {
			c.error(errWrongType)
		}
	case r.kind == replyText:
		r.text(c, r, nil, false)
	case r.kind == replyType && !found:
		c.out = appendSimple(c.out, typeNone.name())
	case r.kind == replyTTL && !found:
		c.out = appendInt(c.out, -2)
	case r.kind == replyLength && !found:
		c.out = appendInt(c.out, 0)
	case r.kind == replyRange && !found:
		c.out = appendBulk(c.out, "")
	case !found:
		c.out = appendNull(c.out, c.resp3)
	case r.kind <= replyRange:
		c.answerString(r, op.Value)
	case r.kind == replyType:
		t, _ := typed(op.Value)
		c.out = appendSimple(c.out, t.name())
	case r.kind == replyEncoding:
		c.out = appendBulk(c.out, encodingOf(op.Value))
	case r.kind == replyRefcount:
		c.out = appendInt(c.out, 1)
	case r.kind == replyIdle:
		c.out = appendInt(c.out, 0)
	case r.kind == replyFreq:
		c.error(errNoFreq)
	case r.kind == replyUsage:
		c.out = appendInt(c.out, usageOf(op))
	case r.kind == replyDump:
		c.answerDump(op.Value)
	case r.kind == replyTTL:
		c.out = appendInt(c.out, c.ttlOf(op.Expires, r.n, r.m != 0))
	}
}

func (c *client) answerString(r *reply, value []byte) {
	s, ok := stringOf(value)
	switch {
	case !ok && r.kind == replyString:
		c.out = appendNull(c.out, c.resp3)
	case !ok:
		c.error(errWrongType)
	case r.kind == replyLength:
		c.out = appendInt(c.out, int64(len(s)))
	case r.kind == replyRange:
		c.out = appendBulk(c.out, part(s, r.n, r.m))
	default:
		c.out = appendBulk(c.out, s)
	}
}

// conclude appends a reply that needs no operation.
func (c *client) conclude(r *reply) {
	switch {
	case r.kind == replyArray:
		c.out = appendArray(c.out, int(r.n))
		return
	case c.failed != nil:
		c.error(storeError(c.failed))
	case r.kind == replySum:
		c.out = appendInt(c.out, c.tally)
	case r.kind == replyOne:
		c.out = appendInt(c.out, 1)
	default:
		c.out = appendSimple(c.out, "OK")
	}
	c.tally, c.failed = 0, nil
}

// modification is a read-modify-write of one key, and its outcome. call is bound once, so that
// reuse allocates nothing.
type modification struct {
	// change decides the new value and sets the outcome. It may be called several times; the
	// last call counts.
	change func(*modification) kv.Verdict
	// reply appends the reply. It is not called if the change was refused.
	reply func(m *modification, out []byte, resp3 bool) []byte
	// only is the type of value that the change applies to; typeNone: any.
	only valueType

	// The command's arguments. The bytes belong to the connection.
	arg     []byte
	args    [][]byte
	delta   int64
	expires int64 // milliseconds of Unix time, 0: never
	flags   modFlags
	most    int    // most bytes of a value
	bad     string // error of the command that is replied only if the key exists

	// collects is set for a command on a hash or set. fields is the distance between those args that
	// are fields; 0: only the first one is; negative: none.
	collects bool
	fields   int

	call   kv.Modifier
	u      *kv.Update // set while change runs on a record
	worker *worker

	// The key's current value, set while change runs.
	typ     valueType
	content []byte
	// The outcome of the last call of change.
	found   bool // the key exists
	lapsed  bool // the key has, or had, an expired record
	changed bool // the key was changed
	verdict kv.Verdict
	ends    int64  // the key's expiry after the change
	quiet   bool   // the change is only one of the encoding, which nobody is told
	event   string // the event of the change; "": the command's
	old     []byte // bytes for the reply: the old string, or a new number
	result  int64
	refused string // the error reply if the key was not changed because of an error
	// deferred is set if the operation has had no effect and is carried out after the batch.
	deferred bool
	late     bool // it was deferred, and may have been carried out since

	// For changes of a hash or set: opened is the collection if the operation was deferred; elements
	// are those of the collection, or pairs.
	opened   *collection
	elements changeable
	pairs    pairs
	number   []byte // a calculated value
	calls    callModification
}

func newModification(w *worker) *modification {
	m := &modification{worker: w}
	m.call = m.apply
	return m
}

// apply is the kv.Modifier.
func (m *modification) apply(u *kv.Update) kv.Verdict {
	m.u, m.found, m.lapsed, m.changed, m.verdict, m.refused = u, u.Found, u.Expired, false, kv.Keep, ""
	m.deferred = false
	if m.worker.deferring {
		return m.deferTo()
	}
	m.typ, m.content = typeNone, nil
	if u.Found {
		m.typ, m.content = typed(u.Old)
	}
	if u.Found && !m.typ.isFor(m.only) {
		m.refused = errWrongType
		return kv.Keep
	}
	if m.collects && m.typ.isSpread() {
		return m.deferTo()
	}
	verdict := m.change(m)
	m.changed = verdict == kv.Put || verdict == kv.Remove && u.Found
	m.verdict, m.ends = verdict, u.Expires
	m.u, m.content = nil, nil
	return verdict
}

// refuse keeps the key and replies with an error.
func (m *modification) refuse(text string) kv.Verdict {
	m.refused = text
	return kv.Keep
}

// put sets the key to the string s, which must not lie in Update.New.
func (m *modification) put(s []byte) kv.Verdict {
	if len(s) > markSize && marked(s) {
		m.u.New = appendMark(m.u.New, typeString)
	}
	m.u.New = append(m.u.New, s...)
	return kv.Put
}

// putNew sets the key to the string that was appended to Update.New.
func (m *modification) putNew() kv.Verdict {
	if s := m.u.New; len(s) > markSize && marked(s) {
		m.u.New = append(appendMark(s, typeString), s...)[len(s):]
	}
	return kv.Put
}

// keepOld copies the key's string for the reply.
func (m *modification) keepOld() { m.old = append(m.old[:0], m.content...) }

// forget drops references to the connection's bytes, and large buffers.
func (m *modification) forget() {
	m.arg, m.args = nil, nil
	if cap(m.old) > keptValues/maxBatch {
		m.old = nil
	}
	m.pairs.forget()
	m.calls.forget()
	m.elements = nil
}

// Common replies.

func replyResult(m *modification, out []byte, _ bool) []byte { return appendInt(out, m.result) }

// replyOld replies with the old string, or null.
func replyOld(m *modification, out []byte, resp3 bool) []byte {
	if !m.found {
		return appendNull(out, resp3)
	}
	return appendBulk(out, m.old)
}

// replyChanged replies OK if the key was changed, or else null.
func replyChanged(m *modification, out []byte, resp3 bool) []byte {
	if !m.changed {
		return appendNull(out, resp3)
	}
	return appendSimple(out, "OK")
}

// replyWhether replies 1 if the key was changed, or else 0.
func replyWhether(m *modification, out []byte, _ bool) []byte {
	if m.changed {
		return appendInt(out, 1)
	}
	return appendInt(out, 0)
}

func replySimpleOK(_ *modification, out []byte, _ bool) []byte { return appendSimple(out, "OK") }
