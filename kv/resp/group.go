package resp

import (
	"bytes"
	"context"
	"errors"

	"github.com/redykv/redykv/kv"
)

// elementsReply appends the reply of a command that reads a hash or set, which is empty if the key
// does not exist. args are the command's arguments.
type elementsReply func(out []byte, resp3 bool, e elements, args [][]byte) []byte

// readElements adds a read of a collection of a family. reply receives the arguments from the i-th
// on. looks of these, or all if it is negative, are fields that reply looks up.
func (c *client) readElements(family valueType, r request, i, looks int, reply elementsReply) {
	key := c.key(r.arg(1))
	rp := c.readRecord(replyElements, key)
	rp.elements, rp.args, rp.family = reply, c.keep(r, i), family
	rp.looks = looks
	if looks < 0 {
		rp.looks = len(rp.args)
	}
	c.worker.noteRead(key)
}

// answerElements appends the reply of a command that read a packed collection.
func (c *client) answerElements(r *reply, op *kv.Op, found bool) {
	p := &c.worker.packed
	*p = packed{family: r.family}
	if found {
		t, content := typed(op.Value)
		if !t.isFor(r.family) {
			c.error(errWrongType)
			return
		}
		p.rest = content
	}
	c.replyElements(r, p)
}

// replyElements appends the reply to a command that reads elements.
func (c *client) replyElements(r *reply, e elements) {
	at := len(c.out)
	c.out = r.elements(c.out, c.resp3, e, r.args)
	text := e.err()
	if text == "" && int64(len(c.out)-at) > c.server.opts.MaxReplies {
		text = errMemory
	}
	if text != "" {
		c.out = c.out[:at]
		c.error(text)
	}
}

// modifyElements is modify of a collection of a family, with the arguments after its key. fields is
// the distance between the arguments that are fields; 0: only the first one is; negative: none.
func (c *client) modifyElements(family valueType, r request, fields int, change func(*modification) kv.Verdict, reply func(*modification, []byte, bool) []byte) *modification {
	m := c.modify(r.arg(1), change, reply)
	m.only, m.args, m.fields, m.collects = family, c.keep(r, 2), fields, true
	c.worker.defers = true
	return m
}

// load prepares m.elements. It returns false if they are damaged.
func (m *modification) load() bool {
	if m.opened != nil {
		m.elements = m.opened.elements()
		return true
	}
	t := m.typ
	switch {
	case t == typeNone && m.only == typeSet:
		t = typeIntSet // until there is a member
	case t == typeNone:
		t = m.only
	}
	m.elements = &m.pairs
	if !m.pairs.load(m.content, t) {
		m.refused = m.pairs.err()
		return false
	}
	return true
}

// store sets the key to m.elements.
func (m *modification) store() kv.Verdict {
	switch {
	case m.opened != nil:
		m.opened.changed = true
		return kv.Put
	case m.pairs.live == 0:
		return kv.Remove
	case m.pairs.size() > m.worker.packedMost:
		return m.deferTo()
	}
	m.u.New = m.pairs.appendTo(m.u.New)
	return kv.Put
}

// replaceAll sets the key to the elements of p, with an expiry, whatever it holds.
func (m *modification) replaceAll(p *pairs, expires int64) kv.Verdict {
	switch {
	case m.opened != nil:
		col := m.opened
		col.reset(typeNone)
		col.typ, col.pairs, col.expires, col.changed = p.typ, p.clone(), expires, true
		return kv.Put
	case p.size() > m.worker.packedMost:
		return m.deferTo()
	}
	m.u.New, m.u.Expires = p.appendTo(m.u.New), expires
	return kv.Put
}

// removeAll deletes the key.
func (m *modification) removeAll() kv.Verdict {
	if m.opened == nil {
		return kv.Remove
	}
	m.opened.reset(typeNone)
	m.opened.changed = true
	return kv.Put
}

// deferTo has the modification, and all that the batch runs from now on, carried out after the
// batch. The batch has no other changes then: see upsertRecord.
func (m *modification) deferTo() kv.Verdict {
	m.deferred, m.late, m.worker.deferring = true, true, true
	return kv.Keep
}

// again runs one operation of the batch again, by itself.
func (c *client) again(at int) {
	w := c.worker
	w.deferring = false
	ops := w.ops[at : at+1]
	watched := c.server.watches.begin(ops)
	_ = absent(ops, w.session.Do(context.Background(), ops)) // the error is in the operation, or is that of the session
	if watched {
		c.server.watches.end(ops, w.mods[at:at+1])
	}
}

// firstDeferred returns the index of the first operation that was deferred, or the number of
// operations.
func (w *worker) firstDeferred() int {
	if w.deferring {
		for i := range w.ops {
			if w.isDeferred(i) {
				return i
			}
		}
	}
	return len(w.ops)
}

func (w *worker) isDeferred(at int) bool {
	return w.ops[at].Kind == kv.OpRMW && w.mods[at].deferred
}

// isStale reports whether an operation has read its key although an earlier change of this key was
// deferred. Reads of other keys are valid; later operations of the batch may have changed them.
func (w *worker) isStale(at, first int) bool {
	if w.ops[at].Kind != kv.OpRead {
		return false
	}
	for i := first; i < at; i++ {
		if w.ops[i].Kind == kv.OpRMW && w.mods[i].late && bytes.Equal(w.ops[i].Key, w.ops[at].Key) {
			return true
		}
	}
	return false
}

// groupAt returns the number of operations from at on that are carried out as a group. Their replies
// are from i on. first is the first operation that was deferred.
func (w *worker) groupAt(i, at, first int) (n int) {
	for ; i < len(w.replies) && w.replies[i].kind < replyArray; i, at, n = i+1, at+1, n+1 {
		switch kind := w.replies[i].kind; {
		case w.isDeferred(at) && w.mods[at].collects:
		case (kind.collects() || kind == replyDump) && w.ops[at].Err == nil && isSpread(w.ops[at].Value):
		case kind.collects() && w.isStale(at, first):
		default:
			return n
		}
	}
	return n
}

func isSpread(value []byte) bool {
	t, _ := typed(value)
	return t.isSpread()
}

// runGroup carries out n operations of the batch on opened collections. If one of them fails, each
// is carried out by itself, so that only that one has no effect; but none if a collection is torn.
func (c *client) runGroup(i, at, n int) {
	before, firstWrite := len(c.out), c.firstWrite
	err := c.tryGroup(i, at, n)
	if err == nil || c.worker.session.Err() != nil {
		return
	}
	c.out, c.firstWrite = c.out[:before], firstWrite
	switch {
	case n > 1 && !errors.Is(err, errTorn):
		for k := range n {
			c.runGroup(i+k, at+k, 1)
		}
	default:
		for k := at; k < at+n; k++ {
			c.noteWrite(&c.worker.ops[k])
			c.error(storeError(err))
			if c.worker.ops[k].Kind == kv.OpRMW {
				c.worker.mods[k].changed = false
			}
		}
	}
}

// tryGroup is runGroup that returns an error and has had no effect if any operation fails.
func (c *client) tryGroup(i, at, n int) error {
	w := c.worker
	ops, replies := w.ops[at:at+n], w.replies[i:i+n]
	changes := false
	keys := make([][]byte, n)
	for k := range ops {
		keys[k] = ops[k].Key
		changes = changes || ops[k].Kind == kv.OpRMW
	}
	return c.opened(keys, changes, func() error {
		for k := range ops {
			col := w.collections.of(keys[k])
			if ops[k].Kind == kv.OpRMW {
				w.mods[at+k].prefetch(col)
			} else {
				replies[k].prefetch(col)
			}
		}
		w.collections.io.fetch()
		for k := range ops {
			col, before := w.collections.of(keys[k]), len(c.out)
			c.noteWrite(&ops[k])
			if ops[k].Kind == kv.OpRMW {
				c.apply(w.mods[at+k], col)
			} else {
				c.show(&replies[k], col)
				if ops[k].Err = nil; !col.exists() {
					ops[k].Err = kv.ErrNotFound
				}
			}
			switch {
			case w.collections.io.failed != nil:
				return w.collections.io.failed
			case int64(len(c.out)-before) > c.server.opts.MaxReplies:
				return errLargeReply
			}
		}
		return nil
	})
}

// opened calls do while the keys are locked and their collections are open, and then stores those
// that do has changed. If do returns an error, nothing is stored. Within a transaction, which holds
// the locks already, it takes none. A client that has the store alone takes them if it changes the keys:
// compaction must see neither a header that is then undone nor nodes without their header.
func (c *client) opened(keys [][]byte, changes bool, do func() error) (err error) {
	w := c.worker
	ctx := context.Background()
	run := func() error {
		defer w.collections.closeAll()
		if err := c.openAll(keys, changes); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		return c.storeAll()
	}
	switch {
	case c.locked && (!c.alone || !changes):
		return run()
	case changes:
		return w.session.Atomically(ctx, keys, run)
	}
	return w.session.ReadAtomically(ctx, keys, run)
}

// prefetch has the next fetch read the nodes that the modification needs.
func (m *modification) prefetch(col *collection) {
	for i := 0; col.hasTable() && m.fields >= 0 && i < len(m.args); i += m.fields {
		if col.table.prefetch(m.args[i]); m.fields == 0 {
			return
		}
	}
}

// prefetch is that for a command that reads. Of many fields, it is about the first ones only: the reply has
// the nodes of others read when it has no use for these any more.
func (r *reply) prefetch(col *collection) {
	for i := 0; col.hasTable() && i < min(r.looks, chunk) && len(col.table.io.wanted) < manyNodes; i++ {
		col.table.prefetch(r.args[i])
	}
}

// apply carries out a modification on a collection, and appends its reply.
func (c *client) apply(m *modification, col *collection) {
	m.found, m.changed, m.deferred, m.refused, m.verdict = col.exists(), false, false, "", kv.Keep
	m.lapsed = false // openAll has told it
	switch {
	case m.found && !col.typ.isFor(m.only):
		m.refused = errWrongType
		c.error(errWrongType)
		return
	case !m.found:
		col.reset(m.only)
	}
	m.opened = col
	verdict := m.change(m)
	m.opened = nil
	m.changed = verdict == kv.Put
	if text := col.fault(); text != "" && m.refused == "" {
		m.refused = text
	}
	if m.refused != "" {
		c.error(m.refused)
		return
	}
	if exists := col.exists(); m.changed && (m.found || exists) {
		m.verdict, m.ends = kv.Put, col.expires
		if !exists {
			m.verdict = kv.Remove
		}
	} else {
		m.changed = false
	}
	c.out = m.reply(m, c.out, c.resp3)
}

// show appends the reply of a command that reads a collection.
func (c *client) show(r *reply, col *collection) {
	switch found := col.exists(); {
	case r.kind == replyDump && !found:
		c.out = appendNull(c.out, c.resp3)
	case r.kind == replyDump && col.typ.family() == typeList:
		c.dumpList(col.asList())
	case r.kind == replyDump && col.typ.family() == typeSorted:
		c.dumpSorted(col.asSorted())
	case r.kind == replyDump && !col.typ.isElements():
		c.answerDump(col.value)
	case r.kind == replyDump:
		c.dumpElements(col.typ.family(), col.elements())
	case r.kind == replyList || r.kind == replySorted:
		c.showCollection(r, col)
	case !found:
		c.replyElements(r, &packed{family: r.family})
	case !col.typ.isFor(r.family):
		c.error(errWrongType)
	default:
		c.replyElements(r, col.elements())
	}
}

// errReplied is the error of a function that has refused its command. errEnough ends a function
// that needs no more.
var errReplied, errEnough = errors.New("the command is refused"), errors.New("enough")

// refuseOpened notes the error reply of a command within opened, which then ends with the result.
func (c *client) refuseOpened(text string) error {
	c.refusal = text
	return errReplied
}

// concludeOpened replies to a command that called opened with its error, or by reply.
func (c *client) concludeOpened(err error, reply func(out []byte) []byte) {
	w, at := c.worker, len(c.out)
	if w.session.Err() == nil {
		c.tellNoted(err == nil, c)
	}
	switch {
	case w.session.Err() != nil:
		c.abandon(w.session.Err())
		return
	case errors.Is(err, errReplied):
		c.error(c.refusal)
	case err != nil:
		c.error(storeError(err))
	default:
		c.out = reply(c.out)
	}
	if w.collections.stored {
		c.holdReplies(at)
	}
	c.serveWaiters()
}
