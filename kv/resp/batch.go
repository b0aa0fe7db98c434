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
	replyValue    replyKind = iota // the string that was read, or null
	replyString                    // the same, and null for what is no string
	replyLength                    // its length, or 0
	replyRange                     // the part of it from n to m
	replyType                      // the type of what was read
	replyEncoding                  // its encoding in Redis, or null
	replyRefcount                  // 1, or null
	replyUsage                     // the bytes that the record takes, or null
	replyDump                      // what RESTORE takes, or null
	replyTTL                       // in units of n milliseconds; m: absolute
	replyHash                      // what the reply's function makes of the hash
	replyOK                        // OK
	replyMod                       // what the modification says
	// Parts of a reply, of one operation.
	replyTally    // counts a key that was found
	replyTallyMod // counts a key that was changed
	replyPart     // only failure matters
	replyTake     // keeps what was found for the command itself
	// Without an operation.
	replyArray // announces the n replies that follow, as elements
	replySum   // what was counted
	replyDone  // OK, if no part failed
	replyOne   // the same with 1
)

type reply struct {
	kind replyKind
	n, m int64
	// Of replyHash: what it is made of, with these arguments of the command.
	hash hashReply
	args [][]byte
}

// operation adds one to the batch, whose outcome becomes kind.
func (c *client) operation(kind replyKind) (*kv.Op, *reply) {
	if c.worker != nil && len(c.worker.ops) >= c.worker.limit {
		c.flush()
	}
	w := c.borrow()
	w.replies = append(w.replies, reply{kind: kind})
	n := len(w.ops)
	w.ops = w.ops[:n+1]
	return &w.ops[n], &w.replies[len(w.replies)-1]
}

// mark adds a reply without an operation, behind those of the batch.
func (c *client) mark(kind replyKind, n int) {
	w := c.borrow()
	w.replies = append(w.replies, reply{kind: kind, n: int64(n)})
}

func (c *client) read(kind replyKind, key []byte) *reply {
	op, rp := c.operation(kind)
	op.Kind, op.Key, op.Value = kv.OpRead, storedKey(key), c.worker.values[len(c.worker.ops)-1]
	return rp
}

// upsert makes a string what the key holds.
func (c *client) upsert(kind replyKind, key, value []byte, expires int64) {
	c.upsertStored(kind, key, storedString(value), expires)
}

// upsertStored is upsert of a value as it is stored.
func (c *client) upsertStored(kind replyKind, key, value []byte, expires int64) {
	op, _ := c.operation(kind)
	op.Kind, op.Key, op.Value, op.Expires = kv.OpUpsert, storedKey(key), value, expires
}

// modify adds a read-modify-write with its reply. The caller fills in the rest of
// what is returned.
func (c *client) modify(key []byte, change func(*modification) kv.Verdict, reply func(*modification, []byte, bool) []byte) *modification {
	return c.modifyAs(replyMod, key, change, reply)
}

func (c *client) modifyAs(kind replyKind, key []byte, change func(*modification) kv.Verdict, reply func(*modification, []byte, bool) []byte) *modification {
	op, _ := c.operation(kind)
	slot := &c.worker.mods[len(c.worker.ops)-1]
	if *slot == nil {
		*slot = newModification()
	}
	m := *slot
	m.change, m.reply, m.only, m.flags, m.delta, m.expires, m.bad = change, reply, typeNone, 0, 0, 0, ""
	op.Kind, op.Key, op.Modify = kv.OpRMW, storedKey(key), m.call
	return m
}

// keep lets arguments of a command be used until its batch is carried out: from
// the i-th on.
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

// giveBack lets others have the worker, whose batch is empty, when there is room
// for its replies.
func (c *client) giveBack() {
	w := c.worker
	if w == nil || c.locked {
		return
	}
	if cap(c.out) > restingOutput && c.loop == nil {
		c.charge()
	}
	c.worker = nil
	if w.session.Err() == nil {
		c.server.pool.giveBack(w)
	} else if err := c.server.pool.discard(w); err != nil {
		c.server.opts.Logger.Error("closing a failed session", "err", err)
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
	watched := c.server.watches.begin(w.ops)
	err := w.run()
	if watched {
		c.server.watches.end(w)
	}
	if w.changes() {
		c.owe()
	}
	if err != nil {
		c.abandon(err)
		return
	}
	at := 0
	for i := range w.replies {
		if r := &w.replies[i]; r.kind < replyArray {
			c.answer(r, w, at)
			at++
		} else {
			c.conclude(r)
		}
	}
	w.reset()
	if c.locked && int64(len(c.out)-c.lockedAt) > c.server.opts.MaxReplies {
		// A client that reads would get what there is meanwhile; but locks are held.
		c.server.opts.Logger.Warn("a transaction has too large replies", "client", c.id)
		c.out = c.out[:c.lockedAt]
		c.error(errTooLargeReply)
		c.silence(len(c.out))
	}
	c.relieve()
}

// abandon ends the connection with its session, of whose operations nobody knows how
// they end: the client has the replies from before.
func (c *client) abandon(err error) {
	c.server.opts.Logger.Error("a session failed", "client", c.id, "err", err)
	c.silence(len(c.out))
	c.worker.forsake()
}

// answer appends the reply, or notes the part of it, of one operation.
func (c *client) answer(r *reply, w *worker, at int) {
	op := &w.ops[at]
	found := op.Err == nil
	if op.Err != nil && !errors.Is(op.Err, kv.ErrNotFound) {
		if r.kind < replyTally {
			c.error("ERR " + op.Err.Error())
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

// answerRead appends the reply of an operation that has read a record.
func (c *client) answerRead(r *reply, op *kv.Op, found bool) {
	switch {
	case r.kind == replyHash:
		c.answerHash(r, op, found)
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
		c.error("ERR " + c.failed.Error())
	case r.kind == replySum:
		c.out = appendInt(c.out, c.tally)
	case r.kind == replyOne:
		c.out = appendInt(c.out, 1)
	default:
		c.out = appendSimple(c.out, "OK")
	}
	c.tally, c.failed = 0, nil
}

// modification is one read-modify-write and its outcome: a command on one key
// that changes it. Its Modifier is bound once, so that using it again allocates
// nothing.
type modification struct {
	// change decides what becomes of the key, and notes what to reply. It may be
	// called several times; the last call counts.
	change func(*modification) kv.Verdict
	// reply appends it; not where the change was refused.
	reply func(m *modification, out []byte, resp3 bool) []byte
	// only is the type of value that the change is for; typeNone: any.
	only valueType

	// What the command gave. The bytes are the connection's.
	arg     []byte
	args    [][]byte
	delta   int64
	expires int64 // milliseconds of Unix time, 0: never
	flags   modFlags
	most    int    // bytes of a value
	bad     string // what is wrong with the command, where that matters for a key that exists only

	call kv.Modifier
	u    *kv.Update // while change runs

	// What the key holds, while change runs…
	typ     valueType
	content []byte
	// …and the outcome, of the last call.
	found   bool // the key exists
	changed bool // and is another one now
	old     []byte
	result  int64
	refused string // why the key stayed as it was

	pairs pairs // scratch of changes of hashes
}

func newModification() *modification {
	m := new(modification)
	m.call = m.apply
	return m
}

// apply is the Modifier.
func (m *modification) apply(u *kv.Update) kv.Verdict {
	m.u, m.found, m.changed, m.refused = u, u.Found, false, ""
	m.typ, m.content = typeNone, nil
	if u.Found {
		m.typ, m.content = typed(u.Old)
	}
	if u.Found && !m.typ.isFor(m.only) {
		m.refused = errWrongType
		return kv.Keep
	}
	verdict := m.change(m)
	m.changed = verdict == kv.Put || verdict == kv.Remove && u.Found
	m.u, m.content = nil, nil
	return verdict
}

// refuse leaves the key as it is and replies with an error.
func (m *modification) refuse(text string) kv.Verdict {
	m.refused = text
	return kv.Keep
}

// put makes s the key's string. It must not lie in Update.New.
func (m *modification) put(s []byte) kv.Verdict {
	if len(s) > markSize && marked(s) {
		m.u.New = appendMark(m.u.New, typeString)
	}
	m.u.New = append(m.u.New, s...)
	return kv.Put
}

// putNew makes what was appended to Update.New the key's string.
func (m *modification) putNew() kv.Verdict {
	if s := m.u.New; len(s) > markSize && marked(s) {
		m.u.New = append(appendMark(s, typeString), s...)[len(s):]
	}
	return kv.Put
}

// keepOld notes the string that the key holds, for the reply.
func (m *modification) keepOld() { m.old = append(m.old[:0], m.content...) }

// forget lets go of what belongs to the connection, and of large memory.
func (m *modification) forget() {
	m.arg, m.args = nil, nil
	if cap(m.old) > keptValues/maxBatch {
		m.old = nil
	}
	m.pairs.forget()
}

// The replies that many have.

func replyResult(m *modification, out []byte, _ bool) []byte { return appendInt(out, m.result) }

// replyOld is the string that was there, or null.
func replyOld(m *modification, out []byte, resp3 bool) []byte {
	if !m.found {
		return appendNull(out, resp3)
	}
	return appendBulk(out, m.old)
}

// replyChanged is OK if the key was changed, or null.
func replyChanged(m *modification, out []byte, resp3 bool) []byte {
	if !m.changed {
		return appendNull(out, resp3)
	}
	return appendSimple(out, "OK")
}

// replyWhether is 1 if the key was changed, or 0.
func replyWhether(m *modification, out []byte, _ bool) []byte {
	if m.changed {
		return appendInt(out, 1)
	}
	return appendInt(out, 0)
}

func replySimpleOK(_ *modification, out []byte, _ bool) []byte { return appendSimple(out, "OK") }
