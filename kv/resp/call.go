package resp

import (
	"bytes"
	"math"

	"github.com/redykv/redykv/kv"
)

// A command on a list or sorted set is a function of a call and of an interface, list or sortedSet.
// It does not know how the collection is stored, nor whether it runs on a record's value in the
// batch or on an opened collection (collection.go).

// call is one execution of such a command: its arguments after the key, and its reply.
type call struct {
	args    [][]byte // they belong to the connection
	resp3   bool
	most    int64 // most bytes of out
	out     []byte
	refused string // the error reply; if it is set, the collection stays as it was
}

func (k *call) refuse(text string) { k.refused = text }

func (k *call) int(n int) { k.out = appendInt(k.out, int64(n)) }

func (k *call) bulk(b []byte) { k.out = appendBulk(k.out, b) }

func (k *call) null() { k.out = appendNull(k.out, k.resp3) }

func (k *call) nullArray() { k.out = appendNullArray(k.out, k.resp3) }

func (k *call) array(n int) { k.out = appendArray(k.out, n) }

// full reports whether the reply is too large, and then refuses the command.
func (k *call) full() bool {
	if int64(len(k.out)) > k.most {
		k.refuse(errMemory)
	}
	return k.refused != ""
}

// container is what lists and sorted sets have in common.
type container interface {
	// count returns the number of elements.
	count() int
	// fault returns the error reply of the first failed access, or "". After a failure, other
	// results are undefined, and nothing is stored.
	fault() string
}

// Functions of commands.
type (
	listCall   func(*call, list)
	sortedCall func(*call, sortedSet)
)

// callModification is the part of a modification for commands on lists and sorted sets.
type callModification struct {
	call     call
	onList   listCall
	onSorted sortedCall
	list     packedList
	sorted   packedSorted
}

// forget drops references to memory of others, and large buffers.
func (m *callModification) forget() {
	m.call.args, m.onList, m.onSorted = nil, nil, nil
	if cap(m.call.out) > keptValues/maxBatch {
		m.call.out = nil
	}
	m.list.forget()
	m.sorted.forget()
}

// modifyList runs a command that changes a list.
func (c *client) modifyList(r request, f listCall) {
	c.modifyCall(r, typeList, changeList).calls.onList = f
}

// modifySorted runs a command that changes a sorted set.
func (c *client) modifySorted(r request, f sortedCall) {
	c.modifyCall(r, typeSorted, changeSorted).calls.onSorted = f
}

func (c *client) modifyCall(r request, only valueType, change func(*modification) kv.Verdict) *modification {
	m := c.modifyElements(only, r, -1, change, replyCall)
	m.calls.call.args, m.calls.call.resp3, m.calls.call.most = m.args, c.resp3, c.server.opts.MaxReplies
	return m
}

func replyCall(m *modification, out []byte, _ bool) []byte { return append(out, m.calls.call.out...) }

func changeList(m *modification) kv.Verdict {
	k := m.beginCall()
	if m.opened != nil {
		l := m.opened.asList()
		m.calls.onList(k, l)
		return m.endCall(l, m.opened.list.changed && !m.opened.spread || m.opened.quick.changed && m.opened.spread)
	}
	l := &m.calls.list
	l.open(m.content)
	m.calls.onList(k, l)
	return m.endPacked(l, l.changed)
}

// manyMembers is the number of arguments from which a sorted set is not changed in one record, where each
// member is looked for among all.
const manyMembers = 256

func changeSorted(m *modification) kv.Verdict {
	k := m.beginCall()
	many := len(m.args) >= manyMembers && m.worker.packedMost < math.MaxInt
	if m.opened != nil {
		if many && !m.opened.spread && m.opened.fault() == "" {
			m.opened.spreadSorted(&m.worker.collections.io)
		}
		s := m.opened.asSorted()
		m.calls.onSorted(k, s)
		return m.endCall(s, m.opened.sorted.changed && !m.opened.spread || m.opened.scored.changed && m.opened.spread)
	}
	if many { // and not here, between the operations of all other sessions
		return m.deferTo()
	}
	s := &m.calls.sorted
	s.open(m.typ, m.content)
	m.calls.onSorted(k, s)
	return m.endPacked(s, s.changed)
}

func (m *modification) beginCall() *call {
	k := &m.calls.call
	k.out, k.refused = k.out[:0], ""
	return k
}

// endCall decides what becomes of the key after a call.
func (m *modification) endCall(of container, changed bool) kv.Verdict {
	switch fault := of.fault(); {
	case fault != "":
		return m.refuse(fault)
	case m.calls.call.refused != "":
		return m.refuse(m.calls.call.refused)
	case m.opened != nil && changed:
		m.opened.changed = true
		return kv.Put
	case !changed, of.count() == 0 && !m.found:
		return kv.Keep
	case of.count() == 0:
		return kv.Remove
	}
	return kv.Put
}

// packedContainer is a list or a sorted set in one record.
type packedContainer interface {
	container
	size() int
	appendTo(dst []byte) []byte
}

// endPacked is endCall for a collection in one record. One that has become too large is changed again,
// when it is opened.
func (m *modification) endPacked(of packedContainer, changed bool) kv.Verdict {
	verdict := m.endCall(of, changed)
	switch {
	case verdict != kv.Put:
	case of.size() > m.worker.packedMost:
		return m.deferTo()
	default:
		m.u.New = of.appendTo(m.u.New)
	}
	return verdict
}

// readList runs a command that reads a list.
func (c *client) readList(r request, f listCall) { c.readCall(r, replyList).onList = f }

// readSorted runs a command that reads a sorted set.
func (c *client) readSorted(r request, f sortedCall) { c.readCall(r, replySorted).onSorted = f }

func (c *client) readCall(r request, kind replyKind) *reply {
	key := c.key(r.arg(1))
	rp := c.readRecord(kind, key)
	rp.args = c.keep(r, 2)
	c.worker.noteRead(key)
	return rp
}

// collects reports whether the reply is made from a collection.
func (kind replyKind) collects() bool {
	return kind == replyElements || kind == replyList || kind == replySorted
}

// answerCall appends the reply of a command that read a packed list or sorted set.
func (c *client) answerCall(r *reply, op *kv.Op, found bool) {
	t, content := typeNone, []byte(nil)
	if found {
		t, content = typed(op.Value)
	}
	switch {
	case r.kind == replyList && (!found || t.family() == typeList):
		c.worker.list.open(content)
		c.replyCall(r, &c.worker.list, nil)
	case r.kind == replySorted && (!found || t.family() == typeSorted):
		c.worker.sorted.open(t, content)
		c.replyCall(r, nil, &c.worker.sorted)
	default:
		c.error(errWrongType)
	}
}

// showCollection appends the reply of a command that reads an opened list or sorted set.
func (c *client) showCollection(r *reply, col *collection) {
	switch {
	case !col.exists():
		c.worker.list.open(nil)
		c.worker.sorted.open(typeNone, nil)
		c.replyCall(r, &c.worker.list, &c.worker.sorted)
	case r.kind == replyList && col.typ.family() == typeList:
		c.replyCall(r, col.asList(), nil)
	case r.kind == replySorted && col.typ.family() == typeSorted:
		c.replyCall(r, nil, col.asSorted())
	default:
		c.error(errWrongType)
	}
}

// replyCall appends the reply of a command that reads a list or a sorted set.
func (c *client) replyCall(r *reply, l list, s sortedSet) {
	k := call{args: r.args, resp3: c.resp3, most: int64(len(c.out)) + c.server.opts.MaxReplies, out: c.out}
	at := len(c.out)
	var refusal string
	if r.kind == replyList {
		r.onList(&k, l)
		refusal = l.fault()
	} else {
		r.onSorted(&k, s)
		refusal = s.fault()
	}
	c.out = k.out
	if refusal == "" {
		refusal = k.refused
	}
	if refusal != "" {
		c.out = c.out[:at]
		c.error(refusal)
	}
}

// listAt returns the list of an open key as a list that may be changed, or the error reply. If the
// key does not exist, the list is empty, and the key holds it if it is changed.
func (c *client) listAt(key []byte) (col *collection, refusal string) {
	return c.containerAt(key, typeList)
}

// sortedAt is listAt for a sorted set.
func (c *client) sortedAt(key []byte) (col *collection, refusal string) {
	return c.containerAt(key, typeSorted)
}

func (c *client) containerAt(key []byte, family valueType) (col *collection, refusal string) {
	col = c.worker.collections.of(key)
	switch {
	case !col.exists():
		col.reset(family)
	case !col.typ.isFor(family):
		return nil, errWrongType
	}
	return col, col.fault()
}

// withOpened calls do while the records' keys are open, and replies with what do returns, or with its
// error reply.
func (c *client) withOpened(keys [][]byte, changes bool, do func() (reply []byte, refusal string)) {
	for i := range keys {
		keys[i] = bytes.Clone(keys[i])
	}
	c.flush()
	c.borrow()
	var reply []byte
	err := c.opened(keys, changes, func() error {
		var refusal string
		if reply, refusal = do(); refusal != "" {
			return c.refuseOpened(refusal)
		}
		return nil
	})
	c.concludeOpened(err, func(out []byte) []byte { return append(out, reply...) })
}
